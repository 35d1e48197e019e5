#include "bench_csv.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

enum kind { TEXT, COUNT, REAL, FLAG, MODE, FIGURE };

/* A member of the head or of the row, or a figure that follows from both and is not read back. */
struct column {
	const char *name;
	enum kind kind;
	bool of_head;
	size_t at, bytes;
	double (*figure)(const struct bench_head *head, const struct bench_row *row);
};

#define HEAD(name, kind, member)                                                                               \
	{                                                                                                      \
		name, kind, true, offsetof(struct bench_head, member),                                         \
		    sizeof(((struct bench_head *)0)->member), NULL                                             \
	}
#define ROW(name, kind, member)                                                                                \
	{                                                                                                      \
		name, kind, false, offsetof(struct bench_row, member),                                         \
		    sizeof(((struct bench_row *)0)->member), NULL                                              \
	}
#define FOLLOWS(name, function)                                                                                \
	{                                                                                                      \
		name, FIGURE, false, 0, 0, function                                                            \
	}

static const struct column columns[] = {
    HEAD("op", TEXT, op),
    HEAD("dtype", TEXT, dtype),
    HEAD("precision", TEXT, precision),
    HEAD("device", TEXT, device),
    HEAD("description", TEXT, description),
    HEAD("seed", COUNT, seed),
    HEAD("cache_bytes", COUNT, cache_bytes),
    HEAD("fma_gflops_per_s", REAL, fma_gflops),
    HEAD("memory_gbytes_per_s", REAL, memory_gbytes),
    HEAD("cache_gbytes_per_s", REAL, cache_gbytes),
    ROW("shape", TEXT, shape),
    ROW("kernel", TEXT, kernel),
    ROW("mode", MODE, mode),
    ROW("sets", COUNT, sets),
    ROW("launches", COUNT, launches),
    ROW("samples", COUNT, samples),
    ROW("flops", REAL, flops),
    ROW("bytes", REAL, bytes),
    ROW("footprint_bytes", COUNT, footprint_bytes),
    ROW("min_us", REAL, min_us),
    ROW("median_us", REAL, median_us),
    ROW("max_us", REAL, max_us),
    FOLLOWS("gflops_per_s", bench_row_gflops),
    FOLLOWS("gbytes_per_s", bench_row_gbytes),
    FOLLOWS("ceiling_percent", bench_row_ceiling_percent),
    ROW("peer", TEXT, peer),
    ROW("peer_us", REAL, peer_us),
    FOLLOWS("peer_percent", bench_row_peer_percent),
    ROW("max_error", REAL, max_error),
    ROW("error_to_bound", REAL, error_to_bound),
    ROW("wrong", FLAG, wrong),
    ROW("tensor_cores", FLAG, tensor_cores),
    ROW("note", TEXT, note),
};
#define N_COLUMNS      (sizeof(columns) / sizeof(columns[0]))
#define FIELDS_MAX     64
#define LINE_MAX_BYTES 4096

/* ---- writing ---- */

void bench_csv_head(FILE *out)
{
	for (size_t i = 0; i < N_COLUMNS; i++)
		fprintf(out, "%s%s", i ? "," : "", columns[i].name);
	fputc('\n', out);
}

void bench_csv_text(FILE *out, const char *text)
{
	if (text[strcspn(text, ",\"\r\n")] == '\0') {
		fputs(text, out);
		return;
	}
	fputc('"', out);
	for (; *text; text++) {
		if (*text == '"')
			fputc('"', out);
		fputc(*text == '\n' || *text == '\r' ? ' ' : *text, out);
	}
	fputc('"', out);
}

/* The fewest digits that give the same number again. */
static void put_real(FILE *out, double value)
{
	char text[40];

	if (isnan(value))
		return;
	for (int digits = 6; digits <= 17; digits++) {
		snprintf(text, sizeof(text), "%.*g", digits, value);
		if (strtod(text, NULL) == value)
			break;
	}
	fputs(text, out);
}

static void put_figure(FILE *out, double value)
{
	if (isfinite(value))
		fprintf(out, "%.6g", value);
}

static void put_member(FILE *out, const struct column *column, const void *member)
{
	switch (column->kind) {
	case TEXT:
		bench_csv_text(out, member);
		return;
	case COUNT:
		fprintf(out, "%" PRIu64, *(const uint64_t *)member);
		return;
	case REAL:
		put_real(out, *(const double *)member);
		return;
	case FLAG:
		fputs(*(const bool *)member ? "yes" : "no", out);
		return;
	case MODE:
		fputs(bench_mode_name(*(const enum bench_mode *)member), out);
		return;
	case FIGURE:
		return;
	}
}

void bench_csv_row(FILE *out, const struct bench_head *head, const struct bench_row *row)
{
	for (size_t i = 0; i < N_COLUMNS; i++) {
		const struct column *c = &columns[i];
		if (i > 0)
			fputc(',', out);
		if (c->kind == FIGURE)
			put_figure(out, c->figure(head, row));
		else
			put_member(out, c, (const char *)(c->of_head ? (const void *)head : row) + c->at);
	}
	fputc('\n', out);
}

/* ---- reading ---- */

/* Cuts a line into fields in place. How many; 0 when there are too many or a quote is not closed. */
static size_t split(char *line, char *fields[FIELDS_MAX])
{
	char *from = line, *to = line;
	size_t n = 0;

	while (n < FIELDS_MAX) {
		bool quoted = *from == '"';
		fields[n++] = to;
		for (from += quoted; *from && (quoted || *from != ','); from++) {
			if (quoted && *from == '"' && *++from != '"')
				break;
			*to++ = *from;
		}
		if (quoted && *from == '\0' && from[-1] != '"')
			return 0;
		bool last = *from != ',';
		from++;
		*to++ = '\0';
		if (last)
			return n;
	}
	return 0;
}

static bool take_count(const char *text, uint64_t *ret)
{
	char *end;

	*ret = strtoull(text, &end, 10);
	return *text >= '0' && *text <= '9' && *end == '\0';
}

static bool take_real(const char *text, double *ret)
{
	char *end;

	*ret = *text ? strtod(text, &end) : (double)NAN;
	return *text == '\0' || (*end == '\0' && !isnan(*ret));
}

static bool take_text(const char *text, char *ret, size_t room)
{
	size_t length = strlen(text);

	if (length >= room)
		return false;
	memcpy(ret, text, length + 1);
	return true;
}

static bool take_member(const char *text, const struct column *column, void *member)
{
	switch (column->kind) {
	case TEXT:
		return take_text(text, member, column->bytes);
	case COUNT:
		return take_count(text, member);
	case REAL:
		return take_real(text, member);
	case FLAG:
		*(bool *)member = strcmp(text, "yes") == 0;
		return *(bool *)member || strcmp(text, "no") == 0;
	case MODE:
		return bench_mode_by_name(text, member);
	case FIGURE:
		break;
	}
	return true;
}

struct reader {
	struct bench_table table;
	const struct column *order[FIELDS_MAX]; /* of the fields; NULL: skipped */
	size_t n_fields, line;
	char *why;
};

static int read_names(struct reader *r, char *line)
{
	char *fields[FIELDS_MAX];
	bool found[N_COLUMNS] = {false};

	r->n_fields = split(line, fields);
	for (size_t f = 0; f < r->n_fields; f++)
		for (size_t i = 0; i < N_COLUMNS; i++)
			if (strcmp(fields[f], columns[i].name) == 0) {
				r->order[f] = &columns[i];
				found[i] = true;
			}
	for (size_t i = 0; i < N_COLUMNS; i++)
		if (!found[i] && columns[i].kind != FIGURE)
			return why_invalid(r->why,
			                   "line 1 has no column '%s'; plot needs what `bench OP SHAPE "
			                   "--csv` writes, without --random",
			                   columns[i].name);
	return 0;
}

static int read_row(struct reader *r, char *line)
{
	struct bench_head head = bench_head_blank(), *first = &r->table.head;
	struct bench_row row = bench_row_blank();
	char *fields[FIELDS_MAX];

	if (split(line, fields) != r->n_fields)
		return why_invalid(r->why, "line %zu has not the %zu fields that line 1 names", r->line,
		                   r->n_fields);
	for (size_t f = 0; f < r->n_fields; f++) {
		const struct column *c = r->order[f];
		if (c && !take_member(fields[f], c, (char *)(c->of_head ? (void *)&head : &row) + c->at))
			return why_invalid(r->why, "line %zu: '%s' is no %s", r->line, fields[f], c->name);
	}
	if (r->table.n == 0)
		*first = head;
	if (strcmp(head.op, first->op) != 0 || strcmp(head.dtype, first->dtype) != 0 ||
	    strcmp(head.device, first->device) != 0)
		return why_invalid(r->why, "line %zu is %s %s on %s, but the lines before are %s %s on %s",
		                   r->line, head.op, head.dtype, head.device, first->op, first->dtype,
		                   first->device);
	return bench_table_add(&r->table, &row);
}

static int read_line(struct reader *r, char *line)
{
	line[strcspn(line, "\r\n")] = '\0';
	r->line++;
	if (r->line == 1)
		return read_names(r, line);
	return line[0] ? read_row(r, line) : 0;
}

int bench_csv_read(FILE *in, struct bench_table *ret_table, char *why)
{
	struct reader r = {.why = why};
	char line[LINE_MAX_BYTES];
	int rc = 0;

	while (rc == 0 && fgets(line, sizeof(line), in)) {
		bool whole = strchr(line, '\n') || strlen(line) + 1 < sizeof(line);
		rc = whole ? read_line(&r, line) : why_invalid(why, "line %zu is too long", r.line + 1);
	}
	if (rc == 0 && ferror(in)) {
		why_invalid(why, "%s", strerror(errno));
		rc = KOPS_E_SYSTEM;
	}
	if (rc == 0 && r.table.n == 0)
		rc = why_invalid(why, "there is no line of figures in it");
	if (rc == KOPS_E_NOMEM)
		why_invalid(why, "out of memory");
	if (rc < 0)
		bench_table_free(&r.table);
	else
		*ret_table = r.table;
	return rc;
}
