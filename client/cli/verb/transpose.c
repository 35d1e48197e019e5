/* transpose: the last two axes of one file. */
#include "verb/commands.h"
#include "verb/rows.h"

static int run(struct cli *cli, int argc, char **argv)
{
	struct task task = {.step = step_of(operation_by_name("transpose"))};

	(void)argc;
	return verb_rows_run(cli, argv[0], &task);
}

static const struct option_row options[] = {OPTIONS_ROWS_COLUMNS, OPTION_DTYPE, OPTION_OUTPUT, OPTIONS_JOB,
                                            OPTIONS_END};

const struct command command_transpose = {
    .name = "transpose",
    .summary = "exchange the last two axes of a file",
    .usage = "[options] X",
    .help = "Y[…, j, i] = X[…, i, j]; any dtype. (A product needs no transposed file: see --trans-a of gemm.)\n"
            "A file named .npy tells its shape (2 to 4 dimensions). Any other file is a raw row-major matrix:\n"
            "-m or -n tells its shape, and a square one needs neither.\n"
            "\n"
            "Without -o, a terminal gets shape, corner and statistics, a pipe the raw elements. The receipt\n"
            "goes to stderr. With --json the matrix is not printed: add -o to have it.\n"
            "\n"
            "Examples:\n"
            "  kops-client transpose a.npy -o at.npy\n"
            "  kops-client transpose -m 300 a.bin -o at.bin\n",
    .min_args = 1,
    .max_args = 1,
    .args_are = "one file",
    .options = options,
    .run = run,
};
