#include "report/csv.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum kind { TEXT, COUNT, REAL, FLAG, MODE, FIGURE };

/* A member of the head or of the row, or a figure derived from both. */
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
    HEAD("input", TEXT, input),
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
#define N_COLUMNS (sizeof(columns) / sizeof(columns[0]))

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

/* Writes the fewest digits that read back as the same number. */
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
