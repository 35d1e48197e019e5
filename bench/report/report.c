#include "report/report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "show.h"

#define NONE "–"

/* Formats three significant digits, without an exponent. */
static struct show_text figure(double value)
{
	struct show_text t = {NONE};
	int decimals = value < 0.0995 ? 4 : value < 0.995 ? 3 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;

	if (isfinite(value))
		snprintf(t.text, sizeof(t.text), "%.*f", value == 0 ? 0 : decimals, value);
	return t;
}

static struct show_text percent(double value)
{
	struct show_text t = {NONE};

	if (isfinite(value))
		snprintf(t.text, sizeof(t.text), "%.1f", value);
	return t;
}

static struct show_text error(double value)
{
	struct show_text t = {NONE};

	if (!isnan(value))
		snprintf(t.text, sizeof(t.text), "%.2g", value);
	return t;
}

static void right(FILE *out, int columns, struct show_text t)
{
	fprintf(out, " %*s", show_field(columns, t.text), t.text);
}

static void name_columns(FILE *out, const struct bench_head *head, const struct bench_widths *widths)
{
	fprintf(out, "%-*s %-*s mode %*s %*s %*s %8s%s %9s %6s %9s %8s\n", widths->shape, "shape",
	        widths->kernel, "kernel", show_field(9, "min µs"), "min µs", show_field(9, "median µs"),
	        "median µs", show_field(9, "max µs"), "max µs", head->counts_flops ? "GFLOP/s" : "GB/s",
	        head->counts_flops ? "     GB/s" : "", "% ceiling", "% peer", "max error", "of bound");
}

/* Passes a rate in 1e9 per second to show_flops() and show_rate(). */
#define GIGA(rate) (rate) * 1e9, 1e6

static void ceilings(FILE *out, const struct bench_head *head)
{
	const char *before = "measured ceilings: ";

	if (head->fma_gflops > 0) {
		fprintf(out, "%sFMA %s", before, show_flops(GIGA(head->fma_gflops)).text);
		before = ", ";
	}
	if (head->memory_gbytes > 0) {
		fprintf(out, "%smemory %s", before, show_rate(GIGA(head->memory_gbytes)).text);
		before = ", ";
	}
	if (head->cache_gbytes > 0)
		fprintf(out, "%scache of %s %s", before, show_bytes(head->cache_bytes).text,
		        show_rate(GIGA(head->cache_gbytes)).text);
	if (before[0] == ',')
		fputc('\n', out);
}

void bench_report_head(FILE *out, const struct bench_head *head, const struct bench_widths *widths)
{
	fprintf(out, "%s %s on %s: %s\n", head->op, head->dtype, head->device, head->description);
	ceilings(out, head);
	fprintf(out, "input from seed %" PRIu64 "; times per launch\n\n", head->seed);
	name_columns(out, head, widths);
}

void bench_report_row(FILE *out, const struct bench_head *head, const struct bench_row *row,
                      const struct bench_widths *widths)
{
	fprintf(out, "%-*s %-*s %s", widths->shape, row->shape, widths->kernel, row->kernel,
	        bench_mode_name(row->mode));
	right(out, 9, figure(row->min_us));
	right(out, 9, figure(row->median_us));
	right(out, 9, figure(row->max_us));
	right(out, 8, figure(bench_row_speed(head, row)));
	if (head->counts_flops)
		right(out, 8, figure(bench_row_gbytes(head, row)));
	right(out, 9, percent(bench_row_ceiling_percent(head, row)));
	right(out, 6, percent(bench_row_peer_percent(head, row)));
	right(out, 9, error(row->max_error));
	right(out, 8, error(row->error_to_bound));
	fprintf(out, "%s%s\n", row->note[0] ? "  " : "", row->note);
}

/* ---- JSON ---- */

static void json_receipt(struct json *json, const struct bench_row *row)
{
	json_object(json, "receipt");
	json_us(json, "upload_us", row->upload_us);
	json_us(json, "compute_us", row->compute_us);
	json_us(json, "download_us", row->download_us);
	json_close_object(json);
}

static void json_row(struct json *json, const struct bench_head *head, const struct bench_row *row)
{
	json_object(json, NULL);
	json_text(json, "shape", row->shape);
	json_text(json, "kernel", row->kernel);
	json_text(json, "mode", bench_mode_name(row->mode));
	json_bool(json, "measured", bench_row_measured(row));
	json_count(json, "sets", row->sets);
	json_count(json, "launches", row->launches);
	json_count(json, "samples", row->samples);
	json_real(json, "flops", row->flops);
	json_real(json, "bytes", row->bytes);
	json_count(json, "footprint_bytes", row->footprint_bytes);
	json_us(json, "min_us", row->min_us);
	json_us(json, "median_us", row->median_us);
	json_us(json, "max_us", row->max_us);
	json_real(json, "gflops_per_s", bench_row_gflops(head, row));
	json_real(json, "gbytes_per_s", bench_row_gbytes(head, row));
	json_real(json, "ceiling", bench_row_ceiling(head, row));
	json_real(json, "ceiling_percent", bench_row_ceiling_percent(head, row));
	json_text(json, "peer", row->peer[0] ? row->peer : NULL);
	json_us(json, "peer_us", row->peer_us);
	json_real(json, "peer_percent", bench_row_peer_percent(head, row));
	json_real(json, "max_error", row->max_error);
	json_real(json, "error_to_bound", row->error_to_bound);
	json_bool(json, "wrong", row->wrong);
	json_bool(json, "tensor_cores", row->tensor_cores);
	json_text(json, "why", row->why);
	json_text(json, "passed_over", row->passed_over);
	json_text(json, "note", row->note);
	if (row->mode == BENCH_HOST)
		json_receipt(json, row);
	json_close_object(json);
}

void bench_report_json(struct json *json, const struct bench_table *table)
{
	const struct bench_head *head = &table->head;

	json_text(json, "op", head->op);
	json_text(json, "dtype", head->dtype);
	json_text(json, "precision", head->precision);
	json_text(json, "input", head->input);
	json_text(json, "device", head->device);
	json_text(json, "description", head->description);
	json_count(json, "seed", head->seed);
	json_text(json, "unit", head->counts_flops ? "GFLOP/s" : "GB/s"); /* unit of "ceiling" in rows */
	json_object(json, "ceilings");
	json_real(json, "fma_gflops_per_s", head->fma_gflops);
	json_real(json, "memory_gbytes_per_s", head->memory_gbytes);
	json_real(json, "cache_gbytes_per_s", head->cache_gbytes);
	json_count(json, "cache_bytes", head->cache_bytes);
	json_close_object(json);
	json_array(json, "rows");
	for (size_t i = 0; i < table->n; i++)
		json_row(json, head, &table->rows[i]);
	json_close_array(json);
}
