/* bench: measure kopsd from a client's side. */
#include <string.h>

#include "bench.h"
#include "bench_plot.h"
#include "commands.h"

static int run(struct cli *cli, int argc, char **argv)
{
	const char *argument = argc > 1 ? argv[1] : NULL;
	const struct operation *op;

	if (strcmp(argv[0], "ipc") == 0) {
		if (argument)
			return cli_fail(cli, CLI_USAGE, "ipc takes no shape; --size N sets the small job's");
		return bench_ipc(cli);
	}
	if (strcmp(argv[0], "plot") == 0) {
		if (argument == NULL)
			return cli_fail(cli, CLI_USAGE,
			                "plot needs a file that `kops-client bench OP SHAPE --csv` wrote");
		return bench_plot(cli, argument);
	}
	op = operation_by_name(argv[0]);
	if (op == NULL)
		return cli_fail(cli, CLI_USAGE,
		                "'%s' is not ipc, gemm, softmax, transpose, add, copy, fma or plot", argv[0]);
	return bench_op(cli, op, argument);
}

static const struct option_row options[] = {
    OPTION("count", 0, "N", count, count, "ipc: round trips and jobs of each kind; default 2000"),
    OPTION("size", 0, "N", count, size, "ipc: the small job is an N³ product; default 64"),
    OPTION("kernel", 0, "NAMES", text, kernel,
           "OP: all, or names with commas between them; default: the one that kopsd would take"),
    OPTION("shape", 0, "SHAPES", text, shape, "OP: the same as SHAPE after OP"),
    OPTION("table", 0, "NAME", text, table, "OP: a list of shapes; seed: from cache-resident to 4 GB"),
    OPTION("random", 0, "N", count, random,
           "OP: N shapes from --seed: how much slower is kopsd's choice than the fastest kernel?"),
    OPTION("dtype", 0, "TYPE", dtype, dtype, "OP: f32 (default), f64, f16 or bf16"),
    OPTION_PRECISION,
    OPTION("host", 0, NULL, switch, host, "OP: operands in shared memory, wall times"),
    OPTION("cache", 0, "MODE", text, cache,
           "OP: cold (default): operands come from memory; warm: from the cache; both"),
    OPTION("reps", 0, "N", count, reps, "OP: samples; default 20"),
    OPTION("warmup", 0, "N", count, warmup, "OP: samples before, not counted; default 5"),
    OPTION("launches", 0, "N", count, launches,
           "OP: in a sample, up to 32; default: as many as last 1 ms; 1 shows what single jobs get"),
    OPTION("seed", 0, "N", count, seed, "OP: of the random input and shapes; default: another each time"),
    OPTION("no-check", 0, NULL, switch, no_check, "OP: do not compare with float64"),
    OPTION("no-ceiling", 0, NULL, switch, no_ceiling, "OP: do not measure what the device allows"),
    OPTION("csv", 0, NULL, switch, csv, "OP: one line per shape, kernel and mode, for machines"),
    OPTION("plot", 0, "FILE", text, plot, "OP, plot: draw speed against size and a roofline, as SVG"),
    OPTION_DEVICE,
    OPTION("timeout", 0, "TIME", time, timeout_ms,
           "give up on a job after so long: 2 (seconds), 500ms, 1min; default 30s, OP 10min"),
    OPTION_JSON,
    OPTIONS_END,
};

const struct command command_bench = {
    .name = "bench",
    .summary = "measure round trips, small jobs, or an op's kernels",
    .usage = "[options] ipc | OP [SHAPE[,SHAPE…]] | OP --random N | plot FILE.csv",
    .help =
        "ipc: ping through libkops against a bare SOCK_SEQPACKET echo between two processes (epoll in the "
        "server),\n"
        "measured in turns in the same run; the latency of a small product host to host, and its distance from "
        "the\n"
        "echo; jobs per second with 1 and with 16 jobs out.\n"
        "\n"
        "OP: gemm (shapes are MxNxK), softmax, transpose, add, copy (ROWSxCOLUMNS), fma (ELEMENTSxSTEPS). One "
        "number is a\n"
        "square. Operands are random, in the device's memory. A sample is a job of equal ops, timed by the "
        "device: "
        "--launches,\n"
        "or as many as last a millisecond. Cold, they go over so many sets of operands in turn that four times "
        "the "
        "device's\n"
        "cache passes between two uses; warm, over one set, where it fits the cache. A case ends after --reps "
        "samples, 2 s\n"
        "with 5 of them, or 10 s. GFLOP/s for gemm and fma, GB/s for the rest, each byte counted once each "
        "way.\n"
        "  % ceiling  of what the device allows: what fma, and copy and add, reach in the same run; for warm "
        "rows,\n"
        "             what they reach within the cache\n"
        "  % peer     of cublas or openblas for gemm; for softmax, transpose and add, of a copy of as many "
        "bytes\n"
        "  max error  against float64, on blocks of a result that held NaN before; of bound: its part of what "
        "rounding\n"
        "             may do. Exit status 5 where it is more.\n"
        "A kernel that refuses is shown with its reason. Tables on the CPU stop at 256 MiB.\n"
        "\n"
        "--random N judges the choice of kernels instead: on N shapes of no special size all kernels run, but "
        "for\n"
        "those that were far behind on a shape of no more work; those that a first look shows to be far from "
        "the\n"
        "fastest are not measured again. The loss is by how much the kernel that kopsd takes by itself, once "
        "it\n"
        "has seen some jobs of a shape, is slower\n"
        "than the fastest that it may take: one whose errors may be larger than the precision asks for is "
        "timed,\n"
        "but does not count. --csv has all figures of all kernels; plot does not take it.\n"
        "\n"
        "Examples:\n"
        "  kops-client bench ipc\n"
        "  kops-client bench gemm --table seed --kernel all --plot gemm.svg\n"
        "  kops-client bench softmax 4096x1024,16384x4096 --kernel all --cache both --csv > softmax.csv\n"
        "  kops-client bench plot softmax.csv --plot softmax.svg\n"
        "  kops-client bench gemm 1024 --device cpu --kernel reference,openblas\n"
        "  kops-client bench gemm 4096 --host --json\n"
        "  kops-client bench gemm --random 200 --seed 1 --csv > choice.csv\n",
    .min_args = 1,
    .max_args = 2,
    .args_are = "ipc, an op and a shape, or plot and a file",
    .options = options,
    .run = run,
};
