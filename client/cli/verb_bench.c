/* bench: measure kopsd from a client's side. */
#include <string.h>

#include "bench.h"
#include "commands.h"

static int run(struct cli *cli, int argc, char **argv)
{
	const struct operation *op;

	if (strcmp(argv[0], "ipc") == 0) {
		if (argc > 1)
			return cli_fail(cli, CLI_USAGE, "ipc takes no shape; --size N sets the small job's");
		return bench_ipc(cli);
	}
	op = operation_by_name(argv[0]);
	if (op == NULL)
		return cli_fail(cli, CLI_USAGE, "'%s' is not ipc, gemm, softmax, transpose, add or copy",
		                argv[0]);
	if (argc < 2)
		return cli_fail(cli, CLI_USAGE, "%s needs a shape, such as `kops-client bench %s %s`", argv[0],
		                argv[0], strcmp(argv[0], "gemm") == 0 ? "1024x1024x1024" : "4096x1024");
	return bench_op(cli, op, argv[1]);
}

static const struct option_row options[] = {
    OPTION("count", 0, "N", count, count, "ipc: round trips and jobs of each kind; default 2000"),
    OPTION("size", 0, "N", count, size, "ipc: the small job is an N³ product; default 64"),
    OPTION("reps", 0, "N", count, reps, "OP: measured runs; default 50"),
    OPTION("warmup", 0, "N", count, warmup, "OP: runs before; default 5"),
    OPTION("buffers", 0, "N", count, buffers,
           "OP: sets of operands used in turn, so that caches are cold; default 1"),
    OPTION("resident", 0, NULL, switch, resident, "OP: keep operands in the device's memory"),
    OPTION("dtype", 0, "TYPE", dtype, dtype,
           "OP: f32 (default), f64, f16 or bf16; gemm and copy take them all"),
    OPTION_KERNEL,
    OPTION_PRECISION,
    OPTION_DEVICE,
    OPTION_CHECK,
    OPTION_TIMEOUT,
    OPTION_JSON,
    OPTIONS_END,
};

const struct command command_bench = {
    .name = "bench",
    .summary = "measure round trips, small jobs, or one kernel and shape",
    .usage = "[options] ipc | gemm MxNxK | softmax|transpose|add|copy MxN",
    .help = "ipc: ping through libkops against a bare SOCK_SEQPACKET echo between two processes (epoll in the "
            "server),\n"
            "measured in turns in the same run; the latency of a small product host to host, and its distance "
            "from the\n"
            "echo; jobs per second with 1 and with 16 jobs out.\n"
            "OP: one op on random input: wall time host to host, as this process sees it, and the receipt's "
            "compute\n"
            "time, each as minimum, median and maximum; FLOP/s for products, bytes read and written per second "
            "for\n"
            "the rest. A single number is a square: gemm 1024.\n"
            "\n"
            "Examples:\n"
            "  kops-client bench ipc\n"
            "  kops-client bench gemm 4096x4096x4096 --device gpu0 --check\n"
            "  kops-client bench softmax 65536x1024 --resident --buffers 4 --json\n"
            "  kops-client bench gemm 1024 --device cpu --kernel openblas\n",
    .min_args = 1,
    .max_args = 2,
    .args_are = "ipc, or an op and a shape",
    .options = options,
    .run = run,
};
