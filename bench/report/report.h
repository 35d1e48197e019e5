/*
 * report.h: a table for people, line by line as it is measured, and as JSON.
 */
#ifndef KOPS_BENCH_REPORT_REPORT_H
#define KOPS_BENCH_REPORT_REPORT_H

#include "json.h"
#include "report/table.h"

/* Columns of the text. */
struct bench_widths {
	int shape, kernel;
};

/* Device, ceilings and peer, then the names of the columns. */
void bench_report_head(FILE *out, const struct bench_head *head, const struct bench_widths *widths);
void bench_report_row(FILE *out, const struct bench_head *head, const struct bench_row *row,
                      const struct bench_widths *widths);

/* The members "op" to "rows" of a document. */
void bench_report_json(struct json *json, const struct bench_table *table);

#endif
