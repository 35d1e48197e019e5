#include "plan.h"

#include <math.h>
#include <string.h>

#include "measure.h"
#include "operands.h"
#include "random.h"

#define REPS_DEFAULT    20
#define WARMUP_DEFAULT  5
#define REPS_MAX        1000000
#define CPU_TABLE_BYTES (256ull << 20) /* largest operands in tables on the CPU */

/* ---- what is asked for ---- */

/* The shapes are made once the device is known. */
static int settle_random(struct bench_plan *p)
{
	struct cli *cli = p->bench.cli;
	const struct flags *flags = &cli->flags;

	if (flags->random.value == 0 || flags->random.value > BENCH_SHAPES_MAX)
		return cli_fail(cli, CLI_USAGE, "--random takes 1 to %d shapes", BENCH_SHAPES_MAX);
	if (flags->host || flags->cache)
		return cli_fail(cli, CLI_USAGE,
		                "--random measures cold operands: leave out --host and --cache");
	return CLI_OK;
}

static int settle_shapes(struct bench_plan *p, const char *argument)
{
	struct cli *cli = p->bench.cli;
	const struct flags *flags = &cli->flags;
	const char *text = argument ? argument : flags->shape;
	int rc;

	if ((argument != NULL) + (flags->shape != NULL) + (flags->table != NULL) + flags->random.set > 1)
		return cli_fail(cli, CLI_USAGE,
		                "a shape, --shape, --table and --random say the same: give one of them");
	if (flags->random.set)
		return settle_random(p);
	if (text)
		rc = bench_shapes_read(p->op, text, &p->shapes, cli->why);
	else if (flags->table)
		rc = bench_shapes_table(p->op, flags->table, &p->shapes, cli->why);
	else
		return cli_fail(cli, CLI_USAGE, "needs a shape, such as `kops-bench %s %.*s`, or --table seed",
		                p->op->name, (int)strcspn(p->op->bench.seed, ","), p->op->bench.seed);
	return rc < 0 ? CLI_USAGE : CLI_OK;
}

static int settle_modes(struct bench_plan *p)
{
	struct cli *cli = p->bench.cli;
	const char *cache = cli->flags.cache;

	p->bench.host = cli->flags.host;
	p->bench.again = cli->flags.again;
	if (p->bench.again && !p->bench.host)
		return cli_fail(cli, CLI_USAGE, "--again is for --host: other samples are jobs of many ops");
	if (p->bench.host && cache)
		return cli_fail(cli, CLI_USAGE, "--cache is for operands in the device's memory, not --host");
	if (p->bench.host && cli->flags.launches.set)
		return cli_fail(cli, CLI_USAGE,
		                "--launches is for operands in the device's memory; with --host a "
		                "sample is one op");
	if (cache && strcmp(cache, "cold") != 0 && strcmp(cache, "warm") != 0 && strcmp(cache, "both") != 0)
		return cli_fail(cli, CLI_USAGE, "--cache takes cold, warm or both, not '%s'", cache);
	p->warm = cache && strcmp(cache, "cold") != 0;
	p->cold = cache == NULL || strcmp(cache, "warm") != 0;
	return CLI_OK;
}

int plan_settle(struct bench_plan *p, const char *argument)
{
	struct bench *b = &p->bench;
	const struct flags *flags = &b->cli->flags;

	b->reps = count_or(flags->reps, REPS_DEFAULT);
	b->warmup = count_or(flags->warmup, WARMUP_DEFAULT);
	if (b->reps == 0 || b->reps > REPS_MAX || b->warmup > REPS_MAX)
		return cli_fail(b->cli, CLI_USAGE, "--reps takes 1 to %d, --warmup up to %d", REPS_MAX,
		                REPS_MAX);
	b->launches = count_or(flags->launches, 0);
	if (flags->launches.set && (b->launches == 0 || b->launches > LAUNCHES_MAX))
		return cli_fail(b->cli, CLI_USAGE, "--launches takes 1 to %d", LAUNCHES_MAX);
	if (flags->fma_rate.set && !(flags->fma_rate.value > 0))
		return cli_fail(b->cli, CLI_USAGE, "--fma-rate takes GFLOP/s above 0");
	if (flags->json && flags->csv)
		return cli_fail(b->cli, CLI_USAGE, "--json and --csv both want standard output: give one");
	b->dtype = flags->dtype ? flags->dtype : KOPS_F32;
	b->input = flags->input;
	b->seed = flags->seed.set ? flags->seed.value : random_seed();
	p->check = !flags->no_check;
	int rc = settle_modes(p);
	return rc == CLI_OK ? settle_shapes(p, argument) : rc;
}

int plan_step(const struct bench_plan *p, const struct bench_shape *shape, struct step *ret, char *why)
{
	const struct flags *flags = &p->bench.cli->flags;
	int rc = bench_shape_step(p->op, p->bench.dtype, shape, &flags->op, ret, why);

	if (rc < 0)
		return rc;
	for (unsigned i = 0; i < p->op->n_inputs && rc == 0; i++)
		if (flags->with[i])
			rc = bench_shape_optional(ret, i, p->bench.dtype, shape);
	return rc;
}

/* ---- what the device makes of it ---- */

/* Leaves out the end of a table on a CPU. */
static void cut_table(struct bench_plan *p)
{
	size_t n = 0, all = p->shapes.n;
	struct step step;

	if (p->bench.cli->flags.table == NULL || strcmp(p->bench.kind, "cpu") != 0)
		return;
	for (size_t i = 0; i < all; i++)
		if (plan_step(p, &p->shapes.list[i], &step, p->bench.why) == 0 &&
		    bench_footprint(&step) <= CPU_TABLE_BYTES)
			p->shapes.list[n++] = p->shapes.list[i];
	p->shapes.n = n;
	if (n < all)
		fprintf(stderr, "kops-bench: on the CPU the table stops at 256 MiB of operands\n");
}

static void fill_head(struct bench_plan *p)
{
	static const char *const precisions[] = {"f32", "ieee", "tf32", "bf16"};
	struct bench_head *head = &p->table.head;
	const struct bench *b = &p->bench;

	*head = bench_head_blank();
	bench_put(head->op, sizeof(head->op), p->op->name);
	head->counts_flops = p->op->bench.counts_flops;
	bench_put(head->dtype, sizeof(head->dtype), element_type_name(b->dtype));
	bench_put(head->precision, sizeof(head->precision), precisions[b->cli->flags.precision]);
	bench_put(head->input, sizeof(head->input), bench_input_names[b->input]);
	bench_put(head->device, sizeof(head->device), b->device->name);
	bench_put(head->description, sizeof(head->description), b->device->description);
	head->seed = b->seed;
	head->cache_bytes = b->device->cache_bytes;
}

static void settle_widths(struct bench_plan *p)
{
	p->widths = (struct bench_widths){.shape = 5, .kernel = 10};
	for (size_t i = 0; i < p->shapes.n; i++)
		p->widths.shape = (int)fmax(p->widths.shape, (double)strlen(p->shapes.list[i].text));
	for (size_t i = 0; i < p->kernels.n; i++)
		if (p->kernels.names[i])
			p->widths.kernel = (int)fmax(p->widths.kernel, (double)strlen(p->kernels.names[i]));
}

/* Chooses the peer: a kernel of a library that others know, or else, for ops judged by bytes, a copy. */
static void settle_peer(struct bench_plan *p)
{
	static const char *const libraries[] = {"cublas", "openblas"};
	const struct bench *b = &p->bench;

	for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]) && !p->peer; i++)
		p->peer = bench_kernel_find(b->info, b->kind, p->op->name, libraries[i]);
	p->peer_is_copy = !p->peer && !p->op->bench.counts_flops && p->op != operation_by_name("copy");
}

int plan_prepare(struct bench_plan *p)
{
	struct cli *cli = p->bench.cli;
	int rc = bench_open(&p->bench);

	if (rc != CLI_OK)
		return rc;
	const char *kernels = cli->flags.random.set && !cli->flags.op.kernel ? "all" : cli->flags.op.kernel;
	if (bench_kernels_read(p->bench.info, p->bench.kind, p->op->name, kernels, &p->kernels, cli->why) < 0)
		return CLI_USAGE;
	if (cli->flags.random.set)
		bench_shapes_random(p->op, p->bench.kind, cli->flags.random.value, p->bench.seed, &p->shapes);
	cut_table(p);
	fill_head(p);
	settle_widths(p);
	settle_peer(p);
	if (p->bench.host || cli->flags.no_ceiling || cli->flags.random.set)
		return CLI_OK;
	rc = bench_ceilings(&p->bench, &p->table.head);
	return rc < 0 ? cli_fail_kops(cli, rc, p->bench.why) : CLI_OK;
}
