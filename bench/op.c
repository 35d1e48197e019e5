#include "op.h"

#include <stdlib.h>
#include <string.h>

#include "choice/choice.h"
#include "measure.h"
#include "operands.h"
#include "plan.h"
#include "report/csv.h"

static int failed(struct bench_plan *p, int status)
{
	return cli_fail_kops(p->bench.cli, status, p->bench.why);
}

/* ---- rows ---- */

static int report_row(struct bench_plan *p, const struct bench_row *row)
{
	const struct flags *flags = &p->bench.cli->flags;

	if (bench_table_add(&p->table, row) < 0)
		return KOPS_E_NOMEM;
	if (flags->csv)
		bench_csv_row(stdout, &p->table.head, row);
	else if (!flags->json)
		bench_report_row(stdout, &p->table.head, row, &p->widths);
	fflush(stdout); /* the next row may take a while; cli_flush() checks for errors */
	return 0;
}

/* ---- peers ---- */

static bool fits_cache(const struct bench *b, uint64_t footprint)
{
	return b->device->cache_bytes == 0 || footprint <= b->device->cache_bytes;
}

/* Larger footprints than the cache are measured from memory, whatever the user asked for. */
static bool runs_in(const struct bench_plan *p, enum bench_mode mode, uint64_t footprint)
{
	bool fits = fits_cache(&p->bench, footprint);

	if (p->bench.host || mode == BENCH_HOST)
		return p->bench.host && mode == BENCH_HOST;
	return mode == BENCH_WARM ? p->warm && fits : p->cold || !fits;
}

static size_t sets_for(const struct bench_plan *p, uint64_t footprint)
{
	return runs_in(p, BENCH_COLD, footprint) ? operands_cold_sets(&p->bench, footprint) : 1;
}

/*
 * Measures a copy of as many bytes as a set of operands has, in each mode. Modes without it have a blank row.
 */
static int measure_copies(struct bench_plan *p, uint64_t footprint)
{
	struct bench *b = &p->bench;
	const char *name = bench_kernel_find(b->info, b->kind, "copy", "copy");
	struct measurement what = {.reps = b->reps};
	struct bench_shape shape = {.extents = {1, footprint / 2 / kops_dtype_size(b->dtype)}};
	struct operands operands = {.n_sets = 0};
	struct step step;

	what.kernel = name ? name : bench_kernel_find(b->info, b->kind, "copy", NULL);
	if (what.kernel == NULL || shape.extents[1] == 0)
		return 0;
	int rc = bench_shape_step(operation_by_name("copy"), b->dtype, &shape, NULL, &step, b->why);
	if (rc == 0)
		rc = operands_make(b, &step, sets_for(p, footprint), &operands);
	for (unsigned mode = 0; rc == 0 && mode < BENCH_MODES; mode++) {
		what.mode = (enum bench_mode)mode;
		if (runs_in(p, what.mode, footprint))
			rc = measure(b, &what, &operands, &p->peers[mode]);
	}
	operands_free(&operands);
	return bench_is_refusal(rc) ? 0 : rc;
}

/* Runs before operands are allocated, which may take all memory. */
static int measure_copy_peers(struct bench_plan *p, uint64_t footprint)
{
	for (unsigned mode = 0; mode < BENCH_MODES; mode++)
		p->peers[mode] = bench_row_blank();
	return p->peer_is_copy ? measure_copies(p, footprint) : 0;
}

/* ---- shapes, modes, kernels ---- */

static int measure_row(struct bench_plan *p, enum bench_mode mode, const char *kernel,
                       const struct operands *operands, struct bench_row *ret)
{
	struct measurement what = {.kernel = kernel,
	                           .mode = mode,
	                           .reps = p->bench.reps,
	                           .launches = p->bench.launches,
	                           .check = p->check,
	                           .settled = true};

	return measure(&p->bench, &what, operands, ret);
}

static void note_cold(const struct bench_plan *p, uint64_t footprint, struct bench_row *row)
{
	if (row->mode == BENCH_COLD && bench_row_measured(row) && row->note[0] == '\0' &&
	    !operands_are_cold(&p->bench, footprint, (size_t)row->sets))
		snprintf(row->note, sizeof(row->note), "%zu sets may stay in the cache in part",
		         (size_t)row->sets);
}

/* Runs all kernels in one mode, the peer first, so that each line is complete when it is printed. */
static int run_mode(struct bench_plan *p, const struct bench_shape *shape, const struct operands *operands,
                    enum bench_mode mode)
{
	uint64_t footprint = bench_footprint(&operands->step);
	struct bench_row *peer = &p->peers[mode], row;
	int rc = p->peer ? measure_row(p, mode, p->peer, operands, peer) : 0;

	for (size_t i = 0; rc == 0 && i < p->kernels.n; i++) {
		const char *kernel = p->kernels.names[i];
		if (kernel && p->peer && strcmp(kernel, p->peer) == 0)
			row = *peer;
		else
			rc = measure_row(p, mode, kernel, operands, &row);
		if (rc < 0)
			break;
		memcpy(row.shape, shape->text, sizeof(row.shape));
		row.footprint_bytes = footprint;
		if (bench_row_measured(peer)) {
			memcpy(row.peer, peer->kernel, sizeof(row.peer));
			row.peer_us = peer->median_us;
		}
		note_cold(p, footprint, &row);
		rc = report_row(p, &row);
	}
	return rc;
}

/* Reports a row without figures for each kernel if there is no memory. */
static int refuse_shape(struct bench_plan *p, const struct bench_shape *shape, uint64_t footprint)
{
	struct bench_row row = bench_row_blank();
	int rc = 0;

	row.mode = p->bench.host ? BENCH_HOST : p->cold ? BENCH_COLD : BENCH_WARM;
	row.footprint_bytes = footprint;
	memcpy(row.shape, shape->text, sizeof(row.shape));
	bench_put(row.note, sizeof(row.note), p->bench.why);
	for (size_t i = 0; rc == 0 && i < p->kernels.n; i++) {
		const char *kernel = p->kernels.names[i];
		bench_put(row.kernel, sizeof(row.kernel), kernel ? kernel : "auto");
		rc = report_row(p, &row);
	}
	return rc;
}

static int run_shape(struct bench_plan *p, const struct bench_shape *shape)
{
	struct bench *b = &p->bench;
	struct operands operands = {.n_sets = 0};
	struct step step;

	int rc = plan_step(p, shape, &step, b->why);
	if (rc < 0)
		return rc;
	uint64_t footprint = bench_footprint(&step);
	rc = measure_copy_peers(p, footprint);
	if (rc < 0)
		return rc;
	rc = operands_make(b, &step, sets_for(p, footprint), &operands);
	if (bench_is_refusal(rc))
		return refuse_shape(p, shape, footprint);
	for (unsigned mode = 0; rc == 0 && mode < BENCH_MODES; mode++)
		if (runs_in(p, (enum bench_mode)mode, footprint))
			rc = run_mode(p, shape, &operands, (enum bench_mode)mode);
	operands_free(&operands);
	return rc;
}

static int run_shapes(struct bench_plan *p)
{
	const struct flags *flags = &p->bench.cli->flags;
	int rc = 0;

	if (flags->csv)
		bench_csv_head(stdout);
	else if (!flags->json)
		bench_report_head(stdout, &p->table.head, &p->widths);
	for (size_t i = 0; rc == 0 && i < p->shapes.n; i++)
		rc = run_shape(p, &p->shapes.list[i]);
	return rc < 0 ? failed(p, rc) : CLI_OK;
}

/* ---- the end ---- */

static int judge(struct bench_plan *p)
{
	struct cli *cli = p->bench.cli;
	size_t measured = 0;

	for (size_t i = 0; i < p->table.n; i++) {
		const struct bench_row *row = &p->table.rows[i];
		measured += bench_row_measured(row) ? 1 : 0;
		if (row->wrong)
			return cli_fail(cli, CLI_CHECK_FAILED, "%s, kernel %s: %s", row->shape, row->kernel,
			                row->note);
	}
	if (measured == 0)
		return cli_fail(cli, CLI_FAILED, "no kernel did any of this%s%s", p->table.n ? ": " : "",
		                p->table.n ? p->table.rows[0].note : "");
	return CLI_OK;
}

static void report_json(struct bench_plan *p, bool ok)
{
	struct json json;

	json_begin(&json, stdout, "bench");
	json_text(&json, "bench", p->op->name);
	json_bool(&json, "ok", ok);
	operation_json_attributes(&json, p->op, &p->bench.cli->flags.op);
	bench_report_json(&json, &p->table);
	json_end(&json);
	p->bench.cli->printed = true;
}

static int finish(struct bench_plan *p)
{
	struct cli *cli = p->bench.cli;
	int code = judge(p);
	char why[CLI_WHY_BYTES];

	memcpy(why, cli->why, sizeof(why));
	if (cli->flags.json)
		report_json(p, code == CLI_OK);
	int rc = cli_flush(cli);
	return rc != CLI_OK ? rc : code == CLI_OK ? CLI_OK : cli_fail(cli, (enum cli_exit)code, "%s", why);
}

static int run(struct bench_plan *p)
{
	int rc = plan_prepare(p);

	if (rc == CLI_OK)
		rc = run_shapes(p);
	return rc == CLI_OK ? finish(p) : rc;
}

int bench_op(struct cli *cli, const struct operation *op, const char *shape)
{
	struct bench_plan *p = calloc(1, sizeof(*p));

	if (p == NULL)
		return cli_fail(cli, CLI_FAILED, "out of memory");
	p->bench.cli = cli;
	p->op = op;
	int rc = plan_settle(p, shape);
	if (rc == CLI_OK)
		rc = cli->flags.random.set ? bench_choice(p) : run(p);
	bench_close(&p->bench);
	bench_table_free(&p->table);
	free(p);
	return rc;
}
