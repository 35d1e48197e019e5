#include "show.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "printable.h"
#include "utf8.h"

#define CORNER_ROWS    4
#define CORNER_COLUMNS 6

/* Formats three significant digits. */
static struct show_text scaled(double value, const char *unit)
{
	struct show_text t;
	int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;

	snprintf(t.text, sizeof(t.text), "%.*f %s", decimals, value, unit);
	return t;
}

/* Formats the value in the first of n units, each `step` of the one before, in which it is less than `most`. */
static struct show_text in_units(double value, double step, double most, const char *const *units, size_t n)
{
	size_t i = 0;

	for (; i + 1 < n && value >= most; i++)
		value /= step;
	return scaled(value, units[i]);
}

struct show_text show_us(double us)
{
	static const char *const units[] = {"µs", "ms", "s"};

	return us == 0 ? (struct show_text){"0 µs"} : in_units(us, 1e3, 999.5, units, 3);
}

struct show_text show_bytes(uint64_t bytes)
{
	static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	struct show_text t;

	if (bytes >= 1024)
		return in_units((double)bytes, 1024, 1024, units, 7);
	snprintf(t.text, sizeof(t.text), "%" PRIu64 " bytes", bytes);
	return t;
}

static struct show_text rate(double amount, double us, const char *const units[3])
{
	if (!(amount > 0) || !(us > 0))
		return (struct show_text){""};
	return in_units(amount / us, 1e3, 1e3, units, 3);
}

struct show_text show_flops(double flops, double us)
{
	static const char *const units[] = {"MFLOP/s", "GFLOP/s", "TFLOP/s"};

	return rate(flops, us, units);
}

struct show_text show_rate(double bytes, double us)
{
	static const char *const units[] = {"MB/s", "GB/s", "TB/s"};

	return rate(bytes, us, units);
}

struct show_text show_shape(uint32_t rank, const uint64_t *shape)
{
	struct show_text t = {""};
	size_t used = 0;

	for (uint32_t d = 0; d < rank && used < sizeof(t.text); d++)
		used += (size_t)snprintf(t.text + used, sizeof(t.text) - used, d ? "×%" PRIu64 : "%" PRIu64,
		                         shape[d]);
	return t;
}

static void shape_json(struct json *json, uint32_t rank, const uint64_t *extents)
{
	json_array(json, "shape");
	for (uint32_t d = 0; d < rank; d++)
		json_count(json, NULL, extents[d]);
	json_close_array(json);
}

void show_shape_json(struct json *json, const kops_view *view)
{
	shape_json(json, view->rank, view->shape);
}

void show_op_shape_json(struct json *json, const kops_op_shape *shape)
{
	json_text(json, "dtype", shape->rank ? element_type_name(shape->dtype) : NULL);
	shape_json(json, shape->rank, shape->extents);
}

struct show_line show_op(const char *op, const kops_op_shape *shape)
{
	struct show_line t;
	size_t used = (size_t)snprintf(t.text, sizeof(t.text), "%.64s", op);

	for (uint32_t d = 0; d < shape->rank && used < sizeof(t.text); d++) {
		if (d == 0)
			used += (size_t)snprintf(t.text + used, sizeof(t.text) - used, " %s ",
			                         element_type_name(shape->dtype));
		used += (size_t)snprintf(t.text + used, sizeof(t.text) - used, d ? "×%" PRIu64 : "%" PRIu64,
		                         shape->extents[d]);
	}
	return t;
}

/*
 * Returns the bytes of the character at `at`, its columns, and how it is shown: itself, or "?" if it could
 * control a terminal.
 */
static unsigned next_character(const char *at, int *ret_columns, const char **ret_shown)
{
	size_t unprintable = unprintable_bytes(at);
	uint32_t point;
	unsigned n = utf8_decode(at, &point);

	if (n && !unprintable) {
		*ret_columns = utf8_columns(point);
		*ret_shown = at;
		return n;
	}
	*ret_columns = 1;
	*ret_shown = "?";
	return unprintable ? (unsigned)unprintable : 1;
}

int show_width(const char *text)
{
	int all = 0, columns;
	const char *shown;

	for (; *text; all += columns)
		text += next_character(text, &columns, &shown);
	return all;
}

struct show_line show_cut(const char *text, int most)
{
	static const char mark[] = "…";
	struct show_line t = {""};
	size_t used = 0, marked = 0;
	int columns, all = 0;
	const char *shown;

	while (*text) {
		unsigned read = next_character(text, &columns, &shown);
		size_t n = *shown == '?' ? 1 : read;
		if (all + columns > most || used + n + sizeof(mark) > sizeof(t.text)) {
			strcpy(t.text + marked, mark);
			break;
		}
		memcpy(t.text + used, shown, n);
		all += columns;
		used += n;
		marked = all < most ? used : marked; /* the last place with a column left for the mark */
		text += read;
	}
	return t;
}

int show_field(int columns, const char *text)
{
	return columns + (int)strlen(text) - show_width(text);
}

struct statistics {
	double min, max, mean;
	uint64_t nans;
};

static struct statistics statistics_of(const struct elements *e)
{
	enum { BLOCK = 1024 };
	struct statistics s = {.min = (double)INFINITY, .max = -(double)INFINITY};
	uint64_t rows = elements_rows(e), cols = elements_columns(e);
	double values[BLOCK], sum = 0;

	for (uint64_t r = 0; r < rows; r++) {
		for (uint64_t c = 0; c < cols; c += BLOCK) {
			uint64_t n = cols - c < BLOCK ? cols - c : BLOCK;
			elements_row(e, r, c, n, values);
			for (uint64_t i = 0; i < n; i++) {
				s.nans += isnan(values[i]) ? 1 : 0;
				s.min = values[i] < s.min ? values[i] : s.min;
				s.max = values[i] > s.max ? values[i] : s.max;
				sum += isnan(values[i]) ? 0 : values[i];
			}
		}
	}
	s.mean = sum / (double)(rows * cols - s.nans);
	return s;
}

static void show_corner(FILE *out, const struct elements *e)
{
	/* The first matrix of a batch. */
	uint64_t rows = e->rank > 1 ? e->shape[e->rank - 2] : 1, cols = elements_columns(e);
	uint64_t n = cols < CORNER_COLUMNS ? cols : CORNER_COLUMNS;
	double values[CORNER_COLUMNS];

	for (uint64_t r = 0; r < rows && r < CORNER_ROWS; r++) {
		elements_row(e, r, 0, n, values);
		fputs("  ", out);
		for (uint64_t c = 0; c < n; c++)
			fprintf(out, " %12.6g", isnan(values[c]) ? fabs(values[c]) : values[c]); /* no "-nan" */
		fputs(cols > n ? " …\n" : "\n", out);
	}
	if (rows > CORNER_ROWS)
		fputs("              …\n", out);
}

void show_matrix(FILE *out, const char *name, const struct elements *e)
{
	fprintf(out, "%s%s%s %s\n", name, name[0] ? ": " : "", show_shape(e->rank, e->shape).text,
	        element_type_name(e->dtype));
	if (elements_count(e) == 0) {
		fputs("  no element\n", out);
		return;
	}
	show_corner(out, e);
	struct statistics s = statistics_of(e);
	if (s.nans < elements_count(e))
		fprintf(out, "  min %.6g  max %.6g  mean %.6g", s.min, s.max, s.mean);
	if (s.nans > 0)
		fprintf(out, "  NaN in %" PRIu64 " of %" PRIu64, s.nans, elements_count(e));
	fputc('\n', out);
}
