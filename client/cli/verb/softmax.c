/* softmax over the last axis of one file. */
#include "verb/commands.h"
#include "verb/rows.h"

static int run(struct cli *cli, int argc, char **argv)
{
	struct task task = {.step = step_of(operation_by_name("softmax"))};

	(void)argc;
	task.step.scale = cli->flags.scale.set ? cli->flags.scale.value : 1;
	task.step.log = cli->flags.log;
	return verb_rows_run(cli, argv[0], &task);
}

static const struct option_row options[] = {
    OPTIONS_ROWS_COLUMNS,
    OPTION_DTYPE,
    OPTION("scale", 0, "X", real, scale, "multiply the input by X first; default 1"),
    OPTION("log", 0, NULL, switch, log, "the logarithm of the softmax"),
    OPTION_OUTPUT,
    OPTIONS_JOB,
    OPTIONS_END,
};

const struct command command_softmax = {
    .name = "softmax",
    .summary = "softmax over the last axis of a file",
    .usage = "[options] X",
    .help = "Y = softmax(scale · X), over the last axis (each row of a matrix); f32, f16 and bf16. A file\n"
            "named .npy tells its shape (1 to 4 dimensions). Any other file is a raw row-major matrix: -m or\n"
            "-n tells its shape, and a square one needs neither.\n"
            "\n"
            "Without -o, a terminal gets shape, corner and statistics, a pipe the raw elements. The receipt\n"
            "goes to stderr. With --json the matrix is not printed: add -o to have it.\n"
            "\n"
            "Examples:\n"
            "  kops-client softmax scores.npy -o p.npy\n"
            "  kops-client softmax -n 1000 --scale 0.125 scores.bin -o p.bin --check\n"
            "  kops-client softmax --log logits.npy -o logp.npy\n",
    .min_args = 1,
    .max_args = 1,
    .args_are = "one file",
    .options = options,
    .run = run,
};
