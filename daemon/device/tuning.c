#include "device/tuning.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/shape_class.h"

#define LINE_BYTES 2048
#define US_MAX     1e12

_Static_assert(TUNED_KERNELS_MAX == TUNING_ROWS_MAX, "a line has room");

struct entry {
	struct shape_class class;
	size_t line; /* where it stands in the file */
	struct tuned tuned;
};

struct tuning {
	struct entry *entries; /* in the order of their classes, once the table is read */
	size_t n, room;
};

/* ---- The table ---- */

static int add(struct tuning *t, const struct entry *entry)
{
	if (t->n == t->room) {
		size_t room = t->room ? 2 * t->room : 64;
		struct entry *entries = reallocarray(t->entries, room, sizeof *entries);
		if (!entries)
			return KOPS_E_NOMEM;
		t->entries = entries;
		t->room = room;
	}
	t->entries[t->n++] = *entry;
	return 0;
}

static int compare_entries(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	int order = shape_class_compare(&x->class, &y->class);

	return order ? order : (x->line > y->line) - (x->line < y->line);
}

/* Of the lines of one class the last counts: it was measured anew. */
static void settle(struct tuning *t)
{
	size_t kept = 0;

	if (t->n > 0)
		qsort(t->entries, t->n, sizeof *t->entries, compare_entries);
	for (size_t i = 0; i < t->n; i++)
		if (i + 1 == t->n || shape_class_compare(&t->entries[i].class, &t->entries[i + 1].class) != 0)
			t->entries[kept++] = t->entries[i];
	t->n = kept;
}

void tuning_free(struct tuning *t)
{
	if (!t)
		return;
	free(t->entries);
	free(t);
}

size_t tuning_count(const struct tuning *t)
{
	return t->n;
}

static int compare_to_entry(const void *class, const void *entry)
{
	return shape_class_compare(class, &((const struct entry *)entry)->class);
}

const struct tuned *tuning_find(const struct tuning *t, const struct op_args *args)
{
	const struct entry *entry;
	struct shape_class class;

	if (!t || t->n == 0)
		return NULL;
	shape_class_of(args, &class);
	entry = bsearch(&class, t->entries, t->n, sizeof *t->entries, compare_to_entry);
	return entry ? &entry->tuned : NULL;
}

/* ---- Lines ---- */

struct reader {
	const struct tuning_owner *owner;
	char title[LINE_BYTES]; /* of the owner's section */
	struct tuning *tuning;
	bool in_section; /* the owner's */
	bool stale;
	size_t line, n_entries; /* read so far; entries of the owner's section, used or not */
	char *why;
};

__attribute__((format(printf, 2, 3))) static int refuse(const struct reader *r, const char *format, ...)
{
	size_t used = (size_t)snprintf(r->why, TUNING_WHY_BYTES, "line %zu ", r->line);
	va_list list;

	va_start(list, format);
	vsnprintf(r->why + used, TUNING_WHY_BYTES - used, format, list);
	va_end(list);
	return KOPS_E_INVALID;
}

/* "kopsd 0.1.0 on NVIDIA H200, …" and a description that begin with the same model. */
static bool same_model(const char *title, const char *description)
{
	const char *on = strstr(title, " on ");
	size_t n = strcspn(description, ",");

	return on && strncmp(on + 4, description, n) == 0 && (on[4 + n] == ',' || on[4 + n] == '\0');
}

static int take_title(struct reader *r, char *line)
{
	size_t n = strlen(line);

	if (line[n - 1] != ']')
		return refuse(r, "begins with '[' and does not end with ']'");
	line[n - 1] = '\0';
	r->in_section = strcmp(line + 1, r->title) == 0;
	if (!r->in_section) {
		r->stale |= same_model(line + 1, r->owner->description);
		return 0;
	}
	if (r->tuning)
		return refuse(r, "begins a section that is there already");
	r->tuning = calloc(1, sizeof *r->tuning);
	return r->tuning ? 0 : KOPS_E_NOMEM;
}

static bool take_us(const char *text, double *ret)
{
	if (!text || text[0] == '\0' || text[strspn(text, "0123456789.")] != '\0')
		return false;
	*ret = strtod(text, NULL);
	return *ret > 0 && *ret < US_MAX;
}

static size_t find_kernel(const struct kernel_list *list, const char *name)
{
	size_t i = 0;

	while (i < list->n && strcmp(list->kernels[i].name, name) != 0)
		i++;
	return i;
}

/* Keeps kernels in the order of their times. */
static void insert(struct tuned *tuned, double times[TUNED_KERNELS_MAX], size_t kernel, double us)
{
	unsigned at = tuned->n++;

	for (; at > 0 && times[at - 1] > us; at--) {
		times[at] = times[at - 1];
		tuned->kernels[at] = tuned->kernels[at - 1];
	}
	times[at] = us;
	tuned->kernels[at] = (uint8_t)kernel;
}

static const char *show_us(double us, char text[16])
{
	if (us < 999.5)
		snprintf(text, 16, "%.3g µs", us);
	else if (us < 999.5e3)
		snprintf(text, 16, "%.3g ms", us / 1e3);
	else
		snprintf(text, 16, "%.3g s", us / 1e6);
	return text;
}

static void explain(struct tuned *tuned, const double times[TUNED_KERNELS_MAX], const struct kernel_list *list)
{
	char first[16], second[16];

	if (tuned->n == 1)
		snprintf(tuned->why, sizeof tuned->why, "the one measured for this class of shapes (%s)",
		         show_us(times[0], first));
	else
		snprintf(tuned->why, sizeof tuned->why,
		         "fastest of %u measured for this class of shapes (%s; %.16s %s)", tuned->n,
		         show_us(times[0], first), list->kernels[tuned->kernels[1]].name,
		         show_us(times[1], second));
}

/* KERNEL US [KERNEL US …] */
static int take_kernels(struct reader *r, const struct kernel_list *list, char *text, struct tuned *tuned)
{
	double times[TUNED_KERNELS_MAX], us;
	unsigned n = 0;
	char *save, *name;

	for (name = strtok_r(text, " ", &save); name; name = strtok_r(NULL, " ", &save)) {
		size_t kernel = find_kernel(list, name);

		if (!take_us(strtok_r(NULL, " ", &save), &us))
			return refuse(r, "has no time in microseconds behind \"%.40s\"", name);
		if (n++ == TUNED_KERNELS_MAX)
			return refuse(r, "has more than %d kernels", TUNED_KERNELS_MAX);
		if (kernel < list->n && kernel <= UINT8_MAX)
			insert(tuned, times, kernel, us);
	}
	if (n == 0)
		return refuse(r, "has a class and no kernel");
	if (tuned->n > 0)
		explain(tuned, times, list);
	return 0;
}

static int take_entry(struct reader *r, char *line)
{
	struct entry entry = {.line = r->line};
	size_t n = strcspn(line, " ");
	char *kernels = line + n + (line[n] == ' ');
	int rc;

	if (r->n_entries++ == TUNING_CLASSES_MAX)
		return refuse(r, "is one class more than %d", TUNING_CLASSES_MAX);
	line[n] = '\0';
	if (!shape_class_parse(line, &entry.class))
		return refuse(r, "begins with no class of shapes: \"%.80s\"", line);
	rc = take_kernels(r, r->owner->kernels(ops[entry.class.op]), kernels, &entry.tuned);
	if (rc < 0 || entry.tuned.n == 0)
		return rc;
	return add(r->tuning, &entry);
}

static int take_line(struct reader *r, char *line)
{
	if (r->line == 1)
		return strcmp(line, TUNING_FIRST_LINE) == 0 ? 0 : refuse(r, "is not \"" TUNING_FIRST_LINE "\"");
	if (line[0] == '\0' || line[0] == '#')
		return 0;
	if (line[0] == '[')
		return take_title(r, line);
	return r->in_section ? take_entry(r, line) : 0;
}

/* Cuts the next line off the text. */
static int next_line(struct reader *r, const char **text, size_t *bytes, char line[LINE_BYTES])
{
	const char *end = memchr(*text, '\n', *bytes);
	size_t n = end ? (size_t)(end - *text) : *bytes;

	r->line++;
	if (n >= LINE_BYTES)
		return refuse(r, "is longer than %d bytes", LINE_BYTES - 1);
	memcpy(line, *text, n);
	line[n] = '\0';
	if (strlen(line) != n)
		return refuse(r, "holds a NUL byte");
	*text += n + (end != NULL);
	*bytes -= n + (end != NULL);
	return 0;
}

int tuning_parse(const char *text, size_t bytes, const struct tuning_owner *owner, struct tuning **ret_tuning,
                 bool *ret_stale, char why[TUNING_WHY_BYTES])
{
	struct reader r = {.owner = owner, .why = why};
	char line[LINE_BYTES];
	int rc;

	snprintf(why, TUNING_WHY_BYTES, "out of memory");
	snprintf(r.title, sizeof r.title, "%s on %s", owner->daemon, owner->description);
	do {
		rc = next_line(&r, &text, &bytes, line);
		if (rc == 0)
			rc = take_line(&r, line);
	} while (rc == 0 && bytes > 0);
	if (rc < 0) {
		tuning_free(r.tuning);
		return rc;
	}
	if (r.tuning)
		settle(r.tuning);
	*ret_tuning = r.tuning;
	*ret_stale = r.stale && !r.tuning;
	return 0;
}
