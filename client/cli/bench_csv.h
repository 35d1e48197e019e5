/*
 * bench_csv.h: a table as CSV, one line per row, each with the head, so that lines can be sorted, joined and
 * cut; and back again. Numbers keep every digit; what is not known is empty. Fields are quoted as RFC 4180
 * says.
 */
#ifndef KOPS_CLI_BENCH_CSV_H
#define KOPS_CLI_BENCH_CSV_H

#include <stdio.h>

#include "bench_table.h"

void bench_csv_head(FILE *out);
void bench_csv_row(FILE *out, const struct bench_head *head, const struct bench_row *row);

/* A field, quoted where it must be. */
void bench_csv_text(FILE *out, const char *text);

/*
 * Reads what the two wrote; columns may come in any order, unknown ones are skipped. All rows must be of one
 * op, dtype and device. *ret_table is the caller's on success. KOPS_E_INVALID with the line in why,
 * KOPS_E_NOMEM, KOPS_E_SYSTEM.
 */
int bench_csv_read(FILE *in, struct bench_table *ret_table, char *why);

#endif
