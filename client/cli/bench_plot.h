/*
 * bench_plot.h: the file that --plot names, and `bench plot`.
 */
#ifndef KOPS_CLI_BENCH_PLOT_H
#define KOPS_CLI_BENCH_PLOT_H

#include <stdio.h>

#include "bench_table.h"
#include "cli.h"

/* Opens cli->flags.plot for writing. An exit code. */
int bench_plot_open(struct cli *cli, FILE **ret_file);

/* Draws the table into it and closes it; NULL instead of a table removes it. An exit code. */
int bench_plot_close(struct cli *cli, FILE *file, const struct bench_table *table);

/* `bench plot FILE.csv`: draws again what a run printed with --csv; "-" is standard input. An exit code. */
int bench_plot(struct cli *cli, const char *path);

#endif
