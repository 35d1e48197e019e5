/* tune: measure which kernel is the fastest for which shapes, for kopsd to choose by. */
#include "tune/grid.h"
#include "tune/tune.h"
#include "verbs.h"

static int add_op(struct cli *cli, const char *name, const struct operation *ops[], size_t *n_ops)
{
	const struct operation *op = operation_by_name(name);
	char names[128];

	if (op == NULL || !tune_takes(op))
		return cli_fail(cli, CLI_USAGE, "'%s' is not %s", name,
		                operation_names(tune_takes, names, sizeof(names)));
	for (size_t k = 0; k < *n_ops; k++)
		if (ops[k] == op)
			return CLI_OK;
	ops[(*n_ops)++] = op;
	return CLI_OK;
}

static int run(struct cli *cli, int argc, char **argv)
{
	const struct operation *ops[OPERATIONS];
	size_t n_ops = 0;
	int rc = CLI_OK;

	for (int i = 0; rc == CLI_OK && i < argc; i++)
		rc = add_op(cli, argv[i], ops, &n_ops);
	for (size_t i = 0; argc == 0 && i < OPERATIONS; i++)
		if (tune_takes(operation_at(i)))
			ops[n_ops++] = operation_at(i);
	return rc == CLI_OK ? tune(cli, ops, n_ops) : rc;
}

static const struct option_row options[] = {
    OPTION("device", 0, "NAME", text, device, "which one to measure: gpu0, cpu, …; default: the first"),
    OPTION("time-limit", 0, "TIME", time, time_limit_ms,
           "measure for so long: 90 (seconds), 10min; default 60s"),
    OPTION("output", 'o', "FILE", text, output, "the table; default /var/cache/kopsd/tuning"),
    OPTION("timeout", 0, "TIME", time, timeout_ms, "give up on a job after so long; default 10min"),
    OPTION_JSON,
    OPTIONS_END,
};

const struct command command_tune = {
    .name = "tune",
    .summary = "measure which kernels are the fastest here, for kopsd to choose by",
    .usage = "[options] [OP…]",
    .help = "Runs the kernels of the ops given, else of all, over shapes whose extents are powers of two,\n"
            "the most valuable first, on operands in the device's memory, and writes what it measured to the\n"
            "table that kopsd reads at its start and at `systemctl reload kopsd` (setting tuning-table). From\n"
            "then on a job that names no kernel gets the one that was the fastest for its class of shapes:\n"
            "op, type, precision, layout, alignment, and extents to the nearest power of two. Where nothing\n"
            "was measured kopsd goes by estimates. Where a kernel's errors are larger than the precision asks\n"
            "for it is not taken, however fast, and does not count as a gain.\n"
            "\n"
            "What is measured holds for this device, driver and version of kopsd. Other models' sections of\n"
            "the table stay, and so does what is not measured anew. Run it while nobody else uses the device.\n"
            "Ctrl-C ends it early and keeps what was measured; twice, it keeps nothing.\n"
            "\n"
            "Examples:\n"
            "  sudo kops-bench tune && sudo systemctl reload kopsd\n"
            "  kops-bench tune gemm --device gpu1 --time-limit 5min -o tuning\n",
    .min_args = 0,
    .max_args = OPERATIONS,
    .args_are = "names of ops",
    .options = options,
    .run = run,
};
