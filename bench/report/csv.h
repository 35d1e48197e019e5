/*
 * csv.h: a table as CSV, one line per row, each with the head, so that lines can be sorted, joined and
 * cut. Numbers keep every digit; what is not known is empty. Fields are quoted as RFC 4180
 * says.
 */
#ifndef KOPS_BENCH_REPORT_CSV_H
#define KOPS_BENCH_REPORT_CSV_H

#include <stdio.h>

#include "report/table.h"

void bench_csv_head(FILE *out);
void bench_csv_row(FILE *out, const struct bench_head *head, const struct bench_row *row);

/* A field, quoted where it must be. */
void bench_csv_text(FILE *out, const char *text);

#endif
