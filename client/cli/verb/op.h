/* op.h: the verbs of ops: a job of one op on files; raw ones get dtype and shape from options and each other.
 */
#ifndef KOPS_CLI_VERB_OP_H
#define KOPS_CLI_VERB_OP_H

#include "cli.h"
#include "op/operation.h"

/* The options of a verb of rows, with those of the op between. */
#define OPTIONS_MATRIX(...)                                                                                    \
	OPTION(NULL, 'm', "ROWS", count, m,                                                                    \
	       "rows of a .bin file; follows from -n and the size, or the file is square"),                    \
	    OPTION(NULL, 'n', "COLS", count, n, "columns of a .bin file; follows from -m and the size"),       \
	    OPTION_DTYPE, ##__VA_ARGS__, OPTION_OUTPUT, OPTIONS_JOB, OPTIONS_END

/* Of their help: what files they take, and after it what follows for all verbs of ops, before the examples. */
#define VERB_HELP_FILE                                                                                         \
	"A file named .npy tells its shape (up to 4 dimensions). Any other file is a raw row-major matrix:\n"  \
	"-m or -n tells its shape, and a square one needs neither.\n"
#define VERB_HELP_OUTPUT                                                                                       \
	"\n"                                                                                                   \
	"One of the files may be -, which is standard input. Without -o, a terminal gets shape, corner and\n"  \
	"statistics, a pipe the raw elements, as with -o -. The receipt (what ran, and where the time went)\n" \
	"goes to stderr. With --json the matrix is not printed: add -o FILE to have it.\n"                     \
	"\n"                                                                                                   \
	"Examples:\n"

/* What verbs of one file, and of two, have in common. */
#define VERB_OF_ONE_FILE                                                                                       \
	.usage = "[options] X", .min_args = 1, .max_args = 1, .args_are = "one file", .args = VALUES_FILES,    \
	.run = verb_op
#define TAKES_TWO_FILES                                                                                        \
	.usage = "[options] A B", .min_args = 2, .max_args = 2, .args_are = "two files, A and B",              \
	.args = VALUES_FILES
#define VERB_OF_TWO_FILES TAKES_TWO_FILES, .run = verb_op

/* run() of a verb with the name of an op, and of one with another name. */
int verb_op(struct cli *cli, char **argv);
int verb_op_as(struct cli *cli, const struct operation *op, char **files);

/* An operation's fit(): -m and -n say what the first file is. */
int verb_op_fit_rows(struct cli *cli, struct source *const *sources);

/* ---- gemm.c ---- */

#define GEMM_SETTINGS                                                                                          \
	OPTION("alpha", 0, "X", real, op.alpha, "factor of the product; default 1"),                           \
	    OPTION("beta", 0, "X", real, op.beta, "factor of the old C; default 1 with -c"),                   \
	    OPTION("precision", 0, "P", precision, op.precision,                                               \
	           "what kernels may do to f32: f32 (default), ieee (FMA only), tf32, bf16")

extern const struct command command_gemm, command_sgemm;

/* The operation's fit(): raw files have the shapes that -m, -n, -k and the other files leave them. */
int gemm_fit(struct cli *cli, struct source *const *sources);

#endif
