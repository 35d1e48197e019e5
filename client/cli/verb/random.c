/* random: writes a file of random numbers, to try other verbs. Does not ask kopsd. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dtype.h"
#include "files/sink.h"
#include "random.h"
#include "verb/commands.h"

/* Reads "8x64x64". */
static int read_shape(const char *text, struct elements *ret, char *why)
{
	const char *at = text;

	for (ret->rank = 0; ret->rank < KOPS_RANK_MAX; at++) {
		char *end;
		errno = 0;
		if (*at < '0' || *at > '9')
			break;
		ret->shape[ret->rank++] = strtoull(at, &end, 10);
		if (errno)
			break;
		at = end;
		if (!*at)
			return 0;
		if (*at != 'x')
			break;
	}
	return why_invalid(why, "'%s' is not a shape; one is ROWSxCOLUMNS, or up to %d extents with x between",
	                   text, KOPS_RANK_MAX);
}

static void fill(unsigned char *data, const struct elements *e, uint64_t seed)
{
	kops_dtype component = dtype_component(e->dtype);
	size_t size = kops_dtype_size(component);
	uint64_t n = elements_count(e) * dtype_components(e->dtype);
	struct random random;

	random_start(&random, seed);
	for (uint64_t i = 0; i < n; i++)
		element_put(component, data + i * size, random_unit(&random));
}

static int write_to(struct cli *cli, const char *path, const struct elements *e)
{
	struct sink *sink = sink_open(path, cli->flags.npy, cli->why);
	int rc = sink && sink_write(sink, e, cli->why) == 0 ? CLI_OK : CLI_FAILED;

	cli->silent = rc != CLI_OK && errno == EPIPE;
	sink_close(sink);
	return rc;
}

static int run(struct cli *cli, char **argv)
{
	const struct flags *flags = &cli->flags;
	const char *path = flags->output ? flags->output : "-";
	struct elements e = {.dtype = flags->dtype ? flags->dtype : KOPS_F32};
	uint64_t bytes;

	if (read_shape(argv[0], &e, cli->why) < 0)
		return CLI_USAGE;
	if (e.dtype == KOPS_I32)
		return cli_fail(cli, CLI_USAGE,
		                "random elements are numbers between -1 and 1; i32 has none but 0");
	if (!element_bytes(e.dtype, e.rank, e.shape, &bytes))
		return cli_fail(cli, CLI_FAILED, "%s exceeds any memory", argv[0]);
	if (strcmp(path, "-") == 0 && isatty(STDOUT_FILENO))
		return cli_fail(cli, CLI_FAILED, "binary elements are not written to a terminal; add -o FILE");
	unsigned char *data = malloc(bytes + 1);
	if (!data)
		return cli_fail(cli, CLI_FAILED, "out of memory for the %" PRIu64 " bytes of %s", bytes,
		                argv[0]);
	e = elements_dense(data, &e);
	fill(data, &e, count_or(flags->seed, random_seed()));
	int rc = write_to(cli, path, &e);
	free(data);
	return rc;
}

static const struct option_row options[] = {
    OPTION_OUTPUT,
    OPTION("dtype", 0, "TYPE", dtype, dtype, "f32 (default), f64, f16 or bf16"),
    OPTION("seed", 0, "N", count, seed, "the same numbers each time; default: others each time"),
    OPTION("npy", 0, NULL, switch, npy, "to standard output as NumPy does, with a header"),
    OPTIONS_END,
};

const struct command command_random = {
    .name = "random",
    .summary = "write a matrix of random numbers, to try other verbs on",
    .usage = "[options] SHAPE",
    .help =
        "The numbers are uniform from -1 to 1. A shape is ROWSxCOLUMNS, or up to 4 extents with x between.\n"
        "Without -o the raw elements go to standard output, unless that is a terminal. kopsd is not asked.\n"
        "\n"
        "Examples:\n"
        "  kops-client random 512x512 -o a.bin\n"
        "  kops-client random 8x128x64 --dtype f16 --seed 1 -o heads.npy\n"
        "  kops-client random 512x512 | kops-client sgemm - a.bin -o c.npy\n",
    .min_args = 1,
    .max_args = 1,
    .args_are = "one shape",
    .options = options,
    .run = run,
};
