#include "tune/table.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kops.h"

/* ---- Lines ---- */

static size_t class_length(const char *line)
{
	return strcspn(line, " \n");
}

static bool same_class(const char *a, const char *b)
{
	size_t n = class_length(a);

	return n == class_length(b) && strncmp(a, b, n) == 0;
}

static size_t find(const struct tune_lines *lines, const char *line)
{
	size_t i = 0;

	while (i < lines->n && !same_class(lines->list[i], line))
		i++;
	return i;
}

int tune_lines_add(struct tune_lines *lines, char *line)
{
	size_t i = find(lines, line);

	if (i < lines->n) {
		free(lines->list[i]);
		lines->list[i] = line;
		return 0;
	}
	if (lines->n == lines->room) {
		size_t room = lines->room ? 2 * lines->room : 256;
		char **list = reallocarray(lines->list, room, sizeof(*list));
		if (list == NULL) {
			free(line);
			return KOPS_E_NOMEM;
		}
		lines->list = list;
		lines->room = room;
	}
	lines->list[lines->n++] = line;
	return 0;
}

void tune_lines_free(struct tune_lines *lines)
{
	for (size_t i = 0; i < lines->n; i++)
		free(lines->list[i]);
	free(lines->list);
	*lines = (struct tune_lines){0};
}

/* ---- Reading ---- */

/* At most a byte more than a table may have. */
static char *read_all(int fd)
{
	size_t room = TUNING_BYTES_MAX + 1, used = 0;
	char *text = malloc(room + 1);

	while (text && used < room) {
		ssize_t n = read(fd, text + used, room - used);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			free(text);
			return NULL;
		}
		if (n == 0)
			break;
		used += (size_t)n;
	}
	if (text)
		text[used] = '\0';
	return text;
}

static bool is_table(const char *text)
{
	return strlen(text) <= TUNING_BYTES_MAX &&
	       strncmp(text, TUNING_FIRST_LINE "\n", strlen(TUNING_FIRST_LINE "\n")) == 0;
}

int tune_table_read(const char *path, char **ret_text, char *why)
{
	/* The default lies in a folder of the user kopsd, and root writes it: no link leads elsewhere, no FIFO
	 * waits. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct stat st;
	char *text;

	*ret_text = NULL;
	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0 && errno == ELOOP)
		return why_invalid(why,
		                   "%s is a symbolic link, which tune does not follow; delete it, or give "
		                   "--output the file that it leads to",
		                   path);
	if (fd < 0) {
		why_invalid(why, "cannot read %s: %s", path, strerror(errno));
		return KOPS_E_SYSTEM;
	}
	text = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? read_all(fd) : NULL;
	close(fd);
	if (text == NULL || !is_table(text)) {
		free(text);
		return why_invalid(why, "%s is no tuning table; give --output another name, or delete it",
		                   path);
	}
	*ret_text = text;
	return 0;
}

/* ---- Writing ---- */

static const char *next_line(const char *line)
{
	const char *end = strchr(line, '\n');

	return end ? end + 1 : line + strlen(line);
}

/* Whose section begins here. */
enum owner { OURS, STALE, OTHERS };

static enum owner owner_of(const char *line, const char *title, const char *description)
{
	size_t n = strcspn(line, "\n"), model = strcspn(description, ",");
	const char *on = memmem(line, n, " on ", 4);

	if (n == strlen(title) && strncmp(line, title, n) == 0)
		return OURS;
	if (on == NULL || strncmp(on + 4, description, model) != 0)
		return OTHERS;
	return on[4 + model] == ',' || on[4 + model] == ']' ? STALE : OTHERS;
}

/* A line of our section that was not measured anew. */
static bool is_old_class(const char *line, const struct tune_lines *lines)
{
	return strchr("[#\n", line[0]) == NULL && find(lines, line) == lines->n;
}

/* What stands in sections of one owner, and before the first in those of others. */
static void copy_old(FILE *out, const char *old, enum owner wanted, const char *title, const char *description,
                     const struct tune_lines *lines)
{
	enum owner owner = OTHERS;
	size_t classes = lines->n; /* in our section */
	const char *next;

	for (const char *line = next_line(old); *line; line = next) {
		next = next_line(line);
		if (line[0] == '[')
			owner = owner_of(line, title, description);
		if (owner != wanted)
			continue;
		if (owner == OURS && (!is_old_class(line, lines) || classes++ >= TUNING_CLASSES_MAX))
			continue;
		fprintf(out, "%.*s\n", (int)strcspn(line, "\n"), line);
	}
}

void tune_table_write(FILE *out, const char *old, const char *daemon, const char *description, const char *date,
                      const struct tune_lines *lines)
{
	char title[512];

	snprintf(title, sizeof(title), "[%s on %s]", daemon, description);
	fputs(TUNING_FIRST_LINE "\n", out);
	if (old)
		copy_old(out, old, OTHERS, title, description, lines);
	fprintf(out, "%s\n# measured %s\n", title, date);
	for (size_t i = 0; i < lines->n; i++)
		fprintf(out, "%s\n", lines->list[i]);
	if (old)
		copy_old(out, old, OURS, title, description, lines);
}
