/* matrix.h: what verbs of one file, and add, share: their files, raw ones shaped by -m and -n and typed by
 * --dtype. */
#ifndef KOPS_CLI_VERB_MATRIX_H
#define KOPS_CLI_VERB_MATRIX_H

#include "cli.h"
#include "verb/task.h"

/* Their options, with those of the op between. */
#define OPTIONS_MATRIX(...)                                                                                    \
	OPTIONS_ROWS_COLUMNS, OPTION_DTYPE, ##__VA_ARGS__, OPTION_OUTPUT, OPTIONS_JOB, OPTIONS_END

/* The end of their help, before the examples. */
#define VERB_HELP_OUTPUT                                                                                       \
	"\n"                                                                                                   \
	"Without -o, a terminal gets shape, corner and statistics, a pipe the raw elements. The receipt\n"     \
	"goes to stderr. With --json the matrix is not printed: add -o to have it.\n"                          \
	"\n"                                                                                                   \
	"Examples:\n"

/* Of raw files: --dtype or f32. */
kops_dtype verb_matrix_dtype(const struct cli *cli);

/* Opens a file; a raw one becomes a matrix of dtype `raw` by -m and -n. An exit code. */
int verb_matrix_open(struct cli *cli, const char *path, kops_dtype raw, struct source *ret);

/* run() of a verb with the name of an op of one file. */
int verb_matrix(struct cli *cli, int argc, char **argv);

#endif
