/* report.h: prints a table for people, line by line as it is measured, or as JSON. */
#ifndef KOPS_BENCH_REPORT_REPORT_H
#define KOPS_BENCH_REPORT_REPORT_H

#include "json.h"
#include "report/table.h"

/* Widths of the text's columns. */
struct bench_widths {
	int shape, kernel;
};

/* Prints device, ceilings and peer, then the names of the columns. */
void bench_report_head(FILE *out, const struct bench_head *head, const struct bench_widths *widths);
void bench_report_row(FILE *out, const struct bench_head *head, const struct bench_row *row,
                      const struct bench_widths *widths);

/* Writes the members "op" to "rows" of a document. */
void bench_report_json(struct json *json, const struct bench_table *table);

#endif
