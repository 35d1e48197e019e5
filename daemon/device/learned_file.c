#include "device/learned_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "decimal.h"
#include "log.h"

#define FIRST_LINE "kops learned 1"
#define LINE_BYTES 2048
#define WORDS_MAX  (2 + 4 * LEARNED_CANDIDATES_MAX)

/* ---- Reading ---- */

struct reader {
	const struct learned_file *file;
	const char *text, *end;
	size_t line; /* the last line read */
	char *why;
};

__attribute__((format(printf, 2, 3))) static int refuse(const struct reader *r, const char *format, ...)
{
	size_t used = (size_t)snprintf(r->why, WHY_BYTES, "line %zu ", r->line);
	va_list list;

	va_start(list, format);
	vsnprintf(r->why + used, WHY_BYTES - used, format, list);
	va_end(list);
	return KOPS_E_INVALID;
}

static int next_line(struct reader *r, char line[LINE_BYTES])
{
	const char *end = memchr(r->text, '\n', (size_t)(r->end - r->text));
	size_t n = end ? (size_t)(end - r->text) : 0;

	r->line++;
	if (!end)
		return refuse(r, "has no newline: the file is truncated");
	if (n >= LINE_BYTES)
		return refuse(r, "is longer than %d bytes", LINE_BYTES - 1);
	memcpy(line, r->text, n);
	line[n] = '\0';
	if (strlen(line) != n)
		return refuse(r, "holds a NUL byte");
	r->text = end + 1;
	return 0;
}

static bool take_hash(const char *word, uint64_t *ret)
{
	*ret = strtoull(word, NULL, 16);
	return strlen(word) == 16 && word[strspn(word, "0123456789abcdef")] == '\0';
}

static bool take_us(const char *word, double *ret)
{
	return strlen(word) < 24 && word[strspn(word, "0123456789.e+-")] == '\0' && word[0] != '-' &&
	       decimal_read(word, ret);
}

static bool take_trials(const char *word, unsigned *ret)
{
	*ret = (unsigned)(word[0] - '0');
	return word[0] >= '0' && word[0] <= '9' && word[1] == '\0';
}

static bool take_kernel(const struct kernel_list *list, const char *word, size_t *ret)
{
	for (*ret = 0; *ret < list->n; ++*ret)
		if (strcmp(list->kernels[*ret].name, word) == 0)
			return true;
	return false;
}

/* Reads candidates from words, four for each kernel. */
static int take_candidates(const struct reader *r, char *const *words, size_t n, const struct kernel_list *list,
                           struct learned_shape *ret)
{
	for (; n >= 4; words += 4, n -= 4) {
		struct learned_candidate *c = &ret->candidates[ret->n++];

		if (!take_kernel(list, words[0], &c->kernel))
			return refuse(r, "names a kernel \"%.40s\" that %s does not have", words[0],
			              ret->op->name);
		if (!take_us(words[1], &c->expected_us) || !take_us(words[2], &c->least_us) ||
		    !take_trials(words[3], &c->trials))
			return refuse(r, "needs two times and a count after \"%.40s\"", words[0]);
	}
	return n ? refuse(r, "is truncated") : 0;
}

static int take_shape(const struct reader *r, char *line, struct learned *learned)
{
	struct learned_shape shape = {0};
	char *words[WORDS_MAX], *save, *word;
	size_t n = 0;
	int rc;

	for (word = strtok_r(line, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
		if (n == WORDS_MAX)
			return refuse(r, "names more than %d kernels", LEARNED_CANDIDATES_MAX);
		words[n++] = word;
	}
	shape.op = n > 2 ? op_by_name(words[0]) : NULL;
	if (!shape.op || !take_hash(words[1], &shape.hash))
		return refuse(r, "does not begin with an op and a shape");
	rc = take_candidates(r, words + 2, n - 2, r->file->kernels(shape.op), &shape);
	if (rc == 0 && !learned_import(learned, &shape))
		rc = refuse(
		    r, "is invalid: a kernel is listed twice or alone, or its times and count are impossible");
	return rc;
}

static void write_title(const struct learned_file *file, char title[LINE_BYTES])
{
	snprintf(title, LINE_BYTES, "%s on %s", file->daemon, file->description);
}

int learned_file_parse(const struct learned_file *file, const char *text, size_t bytes, struct learned *learned,
                       char why[WHY_BYTES])
{
	struct reader r = {.file = file, .text = text, .end = text + bytes, .why = why};
	char line[LINE_BYTES], title[LINE_BYTES];
	int rc = next_line(&r, line);

	if (rc < 0)
		return rc;
	if (strcmp(line, FIRST_LINE) != 0)
		return refuse(&r, "is not \"" FIRST_LINE "\"");
	rc = next_line(&r, line);
	if (rc < 0)
		return rc;
	write_title(file, title);
	if (strcmp(line, title) != 0)
		return 0;
	while (rc == 0 && r.text < r.end) {
		rc = next_line(&r, line);
		if (rc == 0)
			rc = take_shape(&r, line, learned);
	}
	return rc < 0 ? rc : 1;
}

/* Reads a file of known size. */
static char *read_bytes(int fd, size_t bytes)
{
	char *text = malloc(bytes + 1);
	size_t used = 0;

	while (text && used < bytes) {
		ssize_t n = read(fd, text + used, bytes - used);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			errno = n == 0 ? ENODATA : errno;
			free(text);
			return NULL;
		}
		used += (size_t)n;
	}
	return text;
}

/* NULL if there is nothing usable; the log says why. A FIFO must not block. */
static char *read_file(const char *path, size_t *ret_bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct stat st;
	char *text = NULL;

	if (fd < 0 && errno == ENOENT)
		return NULL;
	if (fd < 0 || fstat(fd, &st) < 0) {
		log_warning("cannot read measured kernel times from %s: %s; kopsd will measure them again",
		            path, strerror(errno));
	} else if (!S_ISREG(st.st_mode) || st.st_size > (off_t)LEARNED_FILE_BYTES_MAX) {
		log_warning("ignoring %s: expected a regular file of at most %u bytes; kopsd will measure "
		            "kernel times again",
		            path, LEARNED_FILE_BYTES_MAX);
	} else {
		*ret_bytes = (size_t)st.st_size;
		text = read_bytes(fd, *ret_bytes);
		if (!text)
			log_warning(
			    "cannot read measured kernel times from %s: %s; kopsd will measure them again",
			    path, strerror(errno));
	}
	if (fd >= 0)
		close(fd);
	return text;
}

struct learned *learned_file_load(const struct learned_file *file, const struct learned_owner *owner)
{
	struct learned *learned = learned_new(owner);
	char why[WHY_BYTES], *text;
	size_t bytes;
	int rc;

	text = learned ? read_file(file->path, &bytes) : NULL;
	if (!text)
		return learned;
	rc = learned_file_parse(file, text, bytes, learned, why);
	free(text);
	if (rc == 0)
		log_notice("device %s: ignoring %s from another version of kopsd, another device or another "
		           "driver; kopsd will measure kernel times again",
		           file->device, file->path);
	if (rc >= 0)
		return learned;
	log_warning("device %s: ignoring the invalid file %s: %s; kopsd will measure kernel times again",
	            file->device, file->path, why);
	learned_free(learned);
	return learned_new(owner);
}

/* ---- Writing ---- */

static void write_shape(FILE *out, const struct learned_shape *shape, const struct kernel_list *list)
{
	fprintf(out, "%s %016llx", shape->op->name, (unsigned long long)shape->hash);
	for (unsigned i = 0; i < shape->n; i++) {
		const struct learned_candidate *c = &shape->candidates[i];

		fprintf(out, " %s %.6g %.6g %u", list->kernels[c->kernel].name, c->expected_us, c->least_us,
		        c->trials);
	}
	fputc('\n', out);
}

static int write_file(FILE *out, const struct learned_file *file, const struct learned_shape *shapes, size_t n)
{
	char title[LINE_BYTES];

	write_title(file, title);
	fprintf(out, FIRST_LINE "\n%s\n", title);
	for (size_t i = 0; i < n; i++)
		write_shape(out, &shapes[i], file->kernels(shapes[i].op));
	return fflush(out) == 0 && fsync(fileno(out)) == 0 ? 0 : -1;
}

int learned_file_save(const struct learned_file *file, const struct learned_shape *shapes, size_t n,
                      char why[WHY_BYTES])
{
	char fresh[PATH_MAX];
	FILE *out;
	int fd, rc;

	snprintf(fresh, sizeof fresh, "%s.new", file->path);
	unlink(fresh); /* left by a daemon that died while writing it */
	fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	out = fd < 0 ? NULL : fdopen(fd, "w");
	rc = out ? write_file(out, file, shapes, n) : -1;
	if (rc == 0)
		rc = rename(fresh, file->path);
	if (rc < 0)
		snprintf(why, WHY_BYTES, "cannot save measured kernel times to %.160s: %s", file->path,
		         strerror(errno));
	if (rc < 0 && fd >= 0)
		unlink(fresh);
	if (out)
		fclose(out);
	else if (fd >= 0)
		close(fd);
	return rc < 0 ? KOPS_E_SYSTEM : 0;
}
