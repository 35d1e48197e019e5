/*
 * The command for the kernels of one op. Options and help are the same for every op except for its descriptor.
 */
#include <stdio.h>
#include <string.h>

#include "cases.h"
#include "op.h"
#include "operands.h"
#include "verbs.h"

static int run(struct cli *cli, char **argv)
{
	return bench_op(cli, operation_by_name(cli->command->name), argv[0]);
}

static const struct option_type options_input = {.takes = "uniform, normal, outliers or lognormal",
                                                 .words = bench_input_names};

static const struct option_row of_every_op[] = {
    OPTION("kernel", 0, "NAMES", kernel, op.kernel,
           "all, or a list with commas; default: the one that kopsd would choose"),
    OPTION("shape", 0, "SHAPES", text, shape, "the same as the argument"),
    OPTION("table", 0, "NAME", text, table, "a list of shapes; seed: from cache-resident to 4 GB"),
    OPTION("random", 0, "N", count, random,
           "N shapes from --seed: how much slower is kopsd's choice than the fastest kernel?"),
    OPTION("dtype", 0, "TYPE", dtype, dtype, "f32 (default), f64, f16, bf16, c64 or c128"),
    OPTION_PRECISION,
    OPTION("host", 0, NULL, switch, host, "operands in shared memory, wall times"),
    OPTION("again", 0, NULL, switch, again,
           "with --host: submit one job again and again, as services do, not a new one each time"),
    OPTION("cache", 0, "MODE", text, cache,
           "cold (default): operands come from memory; warm: from the cache; both"),
    OPTION("reps", 0, "N", count, reps, "samples; default 20"),
    OPTION("warmup", 0, "N", count, warmup, "uncounted samples before the first; default 5"),
    OPTION("launches", 0, "N", count, launches,
           "ops in a sample, up to 32; default: as many as take 1 ms; 1 shows what single jobs get"),
    OPTION("input", 0, "NAME", input, input,
           "distribution of the input: uniform (default, in [-1, 1)), normal, outliers (normal, but one number "
           "in 100 is 1000 times as large), lognormal (sigma 2)"),
    OPTION("seed", 0, "N", count, seed, "seed of the random input and shapes; default: a new one each time"),
    OPTION("no-check", 0, NULL, switch, no_check, "do not compare with float64"),
    OPTION("fma-rate", 0, "GFLOPS", real, fma_rate,
           "what the device's FMA units can do, as bench/peers measures it: a ceiling of products"),
    OPTION("no-ceiling", 0, NULL, switch, no_ceiling, "do not measure what the device allows"),
    OPTION("csv", 0, NULL, switch, csv, "one line per shape, kernel and mode, for machines"),
    OPTION_DEVICE,
    OPTION_TIMEOUT_BENCH,
    OPTION_JSON,
    OPTIONS_END,
};

#define HELP                                                                                                   \
	"Operands are random and lie in the device's memory. A sample is a job of equal ops, timed by the\n"   \
	"device: --launches of them, or as many as take a millisecond. Cold samples go over so many sets of\n" \
	"operands in turn that four times the device's cache passes between two uses. Warm ones use one "      \
	"set,\n"                                                                                               \
	"where it fits the cache. A case ends after --reps samples, after 2 s with 5 of them, or after 10 "    \
	"s.\n"                                                                                                 \
	"  GFLOP/s    for arithmetic; GB/s of memory, each byte counted once each way\n"                       \
	"  %% ceiling  of what the device allows: what copy and add reach in the same run, for warm "          \
	"operands\n"                                                                                           \
	"             within the cache; for products, what that feeds of --fma-rate. Without it, none\n"       \
	"  %% peer     of cublas or openblas where they have the op, else of a copy of as many bytes\n"        \
	"  max error  against float64, on blocks of a result that held NaN before; of bound: as a part of\n"   \
	"             what rounding may do. Exit status 5 if it is larger.\n"                                  \
	"A kernel that refuses is shown with its reason. Tables on the CPU stop at 256 MiB. bench/plot, in\n"  \
	"the source, draws what --csv and --json write.\n"                                                     \
	"\n"                                                                                                   \
	"--random N judges the choice of kernels instead, on N shapes of no special size; of products on\n"    \
	"a GPU half are long and thin, with extents up to a million. The loss says how much slower\n"          \
	"kopsd's own choice is than the fastest kernel that it may take, once it has seen some jobs of\n"      \
	"the shape. Kernels that a first look, or a shape of no more work, showed to be far slower are\n"      \
	"not measured further. A kernel whose errors may be larger than the precision allows is timed,\n"      \
	"but does not count. --csv has all figures of all kernels.\n"                                          \
	"\n"                                                                                                   \
	"Examples:\n"

#define EXAMPLES                                                                                               \
	"  kops-bench %s %s --kernel all\n"                                                                    \
	"  kops-bench %s --table seed --kernel all --csv > %s.csv\n"                                           \
	"  kops-bench %s %s --host --json\n"                                                                   \
	"  kops-bench %s --random 200 --seed 1 --csv > %s-choice.csv\n"

#define HELP_BYTES 4096 /* for an op's help, most of which is the text above */
#define ROWS_MAX   40

/* The row of an optional input stands for a file there. */
static struct option_row with_input(const struct operation *op, const struct option_row *row, unsigned i)
{
	return (struct option_row){.name = row->name,
	                           .type = &options_switch,
	                           .member = offsetof(struct flags, with) + i * sizeof(bool),
	                           .help = bench_tells_optional(op, i) ? "with this operand"
	                                   : operation_is_extra(op, i)
	                                       ? "with this operand, of the result's shape"
	                                       : "with this operand, as long as the result's rows"};
}

/* Attributes, and optional inputs that are not there anyway, before what is the same for all ops. */
static void add_rows(struct option_row *to, const struct operation *op)
{
	for (const struct option_row *row = op->settings; row && options_is_row(row); row++) {
		unsigned input = operation_optional(op, row->name);
		if (options_find(of_every_op, row->name))
			continue;
		if (operation_has_attribute(op, row->name))
			*to++ = *row;
		else if (input < op->n_inputs && !operation_has_optional(op, input))
			*to++ = with_input(op, row, input);
	}
	memcpy(to, of_every_op, sizeof(of_every_op));
}

const struct command *bench_command(const struct operation *op)
{
	static struct {
		struct command command;
		struct option_row options[ROWS_MAX];
		char summary[128], help[HELP_BYTES];
	} all[OPERATIONS], *next = all;
	const char *name = op->name;
	bool is_cube = bench_takes_cubes(op);
	char shape[BENCH_SHAPE_BYTES];

	snprintf(next->summary, sizeof(next->summary), "speed of the kernels for %s", op->verb.summary);
	snprintf(shape, sizeof(shape), "%.*s", (int)strcspn(op->bench.seed, ","), op->bench.seed);
	snprintf(next->help, sizeof(next->help), "A shape is %s.\n" HELP EXAMPLES, op->bench.form, name,
	         is_cube ? "4096" : shape, name, name, name, is_cube ? "1024,2048" : shape, name, name);
	add_rows(next->options, op);
	next->command = (struct command){
	    .name = op->name,
	    .op = op->name,
	    .summary = next->summary,
	    .usage = "[options] [SHAPE[,SHAPE…] | --table seed | --random N]",
	    .help = next->help,
	    .min_args = 0,
	    .max_args = 1,
	    .args_are = "shapes in one word, with commas between them",
	    .options = next->options,
	    .json_verb = "bench",
	    .run = run,
	};
	return &next++->command;
}
