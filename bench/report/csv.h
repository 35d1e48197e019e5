/*
 * csv.h: writes a table as CSV. Each line has a row and the head, so that lines can be sorted, joined and cut.
 * Numbers keep every digit; unknown ones are empty. Fields are quoted as RFC 4180 says.
 */
#ifndef KOPS_BENCH_REPORT_CSV_H
#define KOPS_BENCH_REPORT_CSV_H

#include <stdio.h>

#include "report/table.h"

void bench_csv_head(FILE *out);
void bench_csv_row(FILE *out, const struct bench_head *head, const struct bench_row *row);

/* Writes a field, quoted if necessary. */
void bench_csv_text(FILE *out, const char *text);

#endif
