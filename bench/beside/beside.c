/* beside.c: measures how long a light user's small job takes beside a heavy neighbour, and what that costs
 * both. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "beside/report.h"
#include "verbs.h"

#define COUNT_DEFAULT 10000
#define EVERY_DEFAULT 300
#define OUT_DEFAULT   2
#define UID_NOBODY    65534
#define ALONE_US      1e6
#define TWO_US        2e6 /* several turns of each user */

/* ---- One load ---- */

/* The heavy one's rate is counted over all of the light one's jobs. */
static int measure_light(struct beside *b, struct beside_row *row)
{
	struct reply first, last;
	char *why = b->bench.why;
	int rc = heavy_count(&b->heavies[0], &first, why);

	if (rc == 0)
		rc = light_measure(&b->light, b->count, b->every_us, &row->light);
	if (rc == 0)
		rc = heavy_count(&b->heavies[0], &last, why);
	if (rc < 0)
		return rc;
	row->beside[0] = done_between(&first.done, &last.done);
	bench_put(row->kernel, sizeof(row->kernel), last.kernel);
	return 0;
}

/* The second user's load is prepared while the first one's runs. */
static int measure_two(struct beside *b, struct beside_row *row)
{
	struct reply last;
	char *why = b->bench.why;
	int rc = heavy_run(&b->heavies[1], &row->load, why);

	if (rc == 0)
		rc = heavies_rates(b->heavies, HEAVIES_MAX, TWO_US, row->beside, why);
	if (rc == 0)
		rc = heavy_count(&b->heavies[0], &last, why);
	if (rc == 0)
		bench_put(row->kernel, sizeof(row->kernel), last.kernel);
	return rc;
}

static int rest(struct beside *b)
{
	int rc = 0;

	for (size_t i = 0; i < b->n_heavies && rc == 0; i++)
		rc = heavy_rest(&b->heavies[i], b->bench.why);
	return rc;
}

static int measure_load(struct beside *b, struct beside_row *row)
{
	int rc = heavy_run(&b->heavies[0], &row->load, b->bench.why);

	if (rc == 0)
		rc = heavies_rates(b->heavies, 1, ALONE_US, &row->alone, b->bench.why);
	if (rc == 0)
		rc = b->two ? measure_two(b, row) : measure_light(b, row);
	if (bench_is_refusal(rc)) {
		bench_put(row->why, sizeof(row->why), b->bench.why);
		rc = 0;
	}
	return rc == 0 ? rest(b) : rc;
}

/* ---- All loads ---- */

static int measure_all(struct beside *b)
{
	bool prints = !b->bench.cli->flags.json;
	int rc = b->two ? 0 : light_make(&b->light, &b->bench);

	if (rc == 0 && !b->two)
		rc = light_measure(&b->light, b->count, b->every_us, &b->quiet);
	if (rc == 0 && prints)
		beside_print_head(b);
	for (size_t i = 0; i < b->loads.n && rc == 0; i++) {
		struct beside_row *row = &b->rows[b->n_rows++];

		row->load = b->loads.list[i];
		rc = measure_load(b, row);
		if (rc == 0 && prints)
			beside_print_row(b, row);
		fflush(stdout); /* cli_flush() checks for errors */
	}
	if (rc == 0 && prints)
		beside_print_end(b);
	return rc;
}

static int finish(struct beside *b)
{
	struct cli *cli = b->bench.cli;
	size_t measured = 0;

	for (size_t i = 0; i < b->n_rows; i++)
		measured += b->rows[i].why[0] == '\0';
	if (cli->flags.json)
		beside_json(b, measured > 0);
	int code = cli_flush(cli);
	if (code == CLI_OK && measured == 0)
		return cli_fail(cli, CLI_FAILED, "the device took none of the loads: %s", b->rows[0].why);
	return code;
}

/* ---- Users ---- */

static int start_heavy(struct beside *b, uid_t uid)
{
	struct heavy *heavy = &b->heavies[b->n_heavies];
	int rc = heavy_start(heavy, b->bench.cli, uid, b->out, b->bench.why);

	b->n_heavies += rc == 0;
	return rc;
}

static void note(struct beside *b, const char *because)
{
	snprintf(b->note, sizeof(b->note), "both are uid %u, one user to kopsd: %s", (unsigned)geteuid(),
	         because);
	fprintf(stderr, "kops-bench beside: %s; root can give --uid of a user who may use the socket\n",
	        b->note);
}

/* Without --uid, root's neighbour is nobody, if the socket lets that user in. */
static int start_other(struct beside *b)
{
	const struct opt_count *given = &b->bench.cli->flags.uid;
	uid_t own = geteuid(), uid = given->set ? (uid_t)given->value : own == 0 ? UID_NOBODY : own;
	char refused[CLI_WHY_BYTES] = "no other uid was given";
	int rc = start_heavy(b, uid);

	if (rc < 0 && uid != own && !given->set) {
		memcpy(refused, b->bench.why, sizeof(refused));
		uid = own;
		rc = start_heavy(b, uid);
	}
	if (rc == 0 && uid == own)
		note(b, refused);
	return rc;
}

/* Forks, so it comes before this process opens a handle. */
static int start_users(struct beside *b)
{
	int rc = b->two ? start_heavy(b, geteuid()) : 0;

	return rc == 0 ? start_other(b) : rc;
}

/* ---- The verb ---- */

static int read_numbers(struct beside *b)
{
	struct cli *cli = b->bench.cli;
	const struct flags *flags = &cli->flags;
	uint64_t out = count_or(flags->out, OUT_DEFAULT);

	b->two = flags->two;
	b->count = count_or(flags->count, COUNT_DEFAULT);
	b->every_us = count_or(flags->every, EVERY_DEFAULT);
	b->out = (unsigned)out;
	if (b->count < 1 || b->count > 1000000)
		return cli_fail(cli, CLI_USAGE, "--count takes 1 to 1000000");
	if (b->every_us < 1 || b->every_us > 10000000)
		return cli_fail(cli, CLI_USAGE, "--every takes 1 to 10000000 microseconds");
	if (out < 1 || out > WORKER_OUT_MAX)
		return cli_fail(cli, CLI_USAGE, "--out takes 1 to %d", WORKER_OUT_MAX);
	if (b->two && (flags->count.set || flags->every.set))
		return cli_fail(cli, CLI_USAGE, "--count and --every are the light user's, whom --two has not");
	if (flags->uid.set && flags->uid.value == UINT32_MAX)
		return cli_fail(cli, CLI_USAGE, "--uid takes 0 to 4294967294");
	if (flags->uid.set && flags->uid.value != geteuid() && geteuid() != 0)
		return cli_fail(cli, CLI_USAGE, "--uid needs root; without it the heavy user is uid %u too",
		                (unsigned)geteuid());
	return CLI_OK;
}

/* Reads loads before anything is started, and again when the kind of device is known. */
static int read_loads(struct beside *b, char **argv)
{
	int rc = loads_read(argv, b->bench.kind, &b->loads, b->bench.why);

	return rc < 0 ? cli_fail(b->bench.cli, CLI_USAGE, "%s", b->bench.why) : CLI_OK;
}

static int measure(struct beside *b, char **argv)
{
	struct cli *cli = b->bench.cli;
	int status = start_users(b);

	if (status < 0)
		return cli_fail_kops(cli, status, b->bench.why);
	int code = bench_open(&b->bench);
	if (code == CLI_OK)
		code = read_loads(b, argv);
	if (code != CLI_OK)
		return code;
	status = measure_all(b);
	return status < 0 ? cli_fail_kops(cli, status, b->bench.why) : finish(b);
}

static void free_all(struct beside *b)
{
	for (size_t i = 0; i < b->n_heavies; i++)
		heavy_stop(&b->heavies[i]);
	for (size_t i = 0; i < b->n_rows; i++)
		samples_free(&b->rows[i].light.wall);
	samples_free(&b->quiet.wall);
	light_free(&b->light);
	bench_close(&b->bench);
	free(b);
}

static int run(struct cli *cli, char **argv)
{
	struct beside *b = calloc(1, sizeof(*b));

	if (b == NULL)
		return cli_fail(cli, CLI_FAILED, "out of memory");
	b->bench.cli = cli;
	b->bench.seed = 1;
	int code = read_numbers(b);
	if (code == CLI_OK)
		code = read_loads(b, argv);
	if (code == CLI_OK)
		code = measure(b, argv);
	free_all(b);
	return code;
}

static const struct option_row options[] = {
    OPTION("count", 0, "N", count, count,
           "the light user's jobs beside each load, fewer if they take over 30 s; default 10000"),
    OPTION("every", 0, "US", count32, every, "microseconds from one of its jobs to the next; default 300"),
    OPTION("out", 0, "N", count32, out, "jobs that a heavy user keeps out: 1 to 64; default 2"),
    OPTION("uid", 0, "N", count32, uid,
           "the heavy user, for root; default: 65534 (nobody) if the socket lets it in, else one's own"),
    OPTION("two", 0, NULL, switch, two, "no light user: each load beside itself, under two uids"),
    OPTION("spin", 0, "US", count32, spin, "microseconds for which clients look for answers before they sleep"),
    OPTION_DEVICE,
    OPTION_TIMEOUT_BENCH,
    OPTION_JSON,
    OPTIONS_END,
};

const struct command command_beside = {
    .name = "beside",
    .summary = "how long a small job takes beside a heavy user",
    .usage = "[options] [LOAD…]",
    .help = "A light user sends a product of 64³ host to host at regular times: first alone, then beside a\n"
            "process of another user that keeps jobs of one kind out all the time. Shown are the times of the\n"
            "light user's jobs from call to answer, and the heavy user's jobs a second alone and beside it.\n"
            "With --two, two heavy users send the same load, and the figures say how they share the device.\n"
            "\n"
            "A load is OP[:DTYPE[:PRECISION]]:SHAPE[:xN][:host][:anew], on random operands:\n"
            "  gemm:f32:4096x4096x4096  one product a job; 4096 says the same\n"
            "  gemm:f32:tf32:8192       in another precision than f32\n"
            "  softmax:f16:16384x16384  any op and type; f32 if none is given\n"
            "  gemm:f32:1024:x16        16 ops a job, on operands of their own\n"
            "  add:f32:4096:host        operands in memory shared with kopsd, not the device's\n"
            "  gemm:f32:4096:anew       a new shape in each job, smaller by a few elements\n"
            "Without loads, a list for the kind of the device is measured.\n"
            "\n"
            "Only root can have two users. Others measure two processes of one user, and so does root where\n"
            "the socket does not let the other one in; a note says so.\n"
            "\n"
            "Examples:\n"
            "  kops-bench beside\n"
            "  kops-bench beside --count 1000 --uid 1000 gemm:f32:8192 softmax:f32:16384\n"
            "  kops-bench beside --two --json gemm:f16:8192\n",
    .min_args = 0,
    .max_args = LOADS_MAX,
    .args_are = "up to 64 loads",
    .options = options,
    .json_verb = "bench",
    .run = run,
};
