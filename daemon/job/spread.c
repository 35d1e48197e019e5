#include "job/spread.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

/* What it takes to start and gather tiles on several devices, and the gain that is worth keeping others from
 * them. */
#define SPREAD_US   100.0
#define SPREAD_GAIN 0.9

static struct device *owner_of(const struct tile *tile)
{
	return tile->spread->job->engine->devices[tile->owner].device;
}

/* ---- Cutting ---- */

static double tile_bytes(const struct op_args *args, const struct op_cut *cut)
{
	struct op_args tile;
	struct cost cost;

	op_part(args, cut, 0, &tile);
	args->op->cost(&tile, &cost);
	return cost.bytes;
}

/* Cuts that are worth a plan. */
#define CUTS_MAX  2
#define BYTES_TOO 1.05 /* of the fewest */

struct cuts {
	unsigned n;
	struct {
		struct op_cut cut;
		double bytes; /* of a tile, which come from host memory */
	} list[CUTS_MAX];     /* those with the fewest bytes, in that order */
};

static void keep_cut(struct cuts *cuts, const struct op_cut *cut, double bytes)
{
	unsigned at = cuts->n;

	while (at > 0 && bytes < cuts->list[at - 1].bytes)
		at--;
	if (at == CUTS_MAX)
		return;
	if (cuts->n < CUTS_MAX)
		cuts->n++;
	for (unsigned i = cuts->n - 1; i > at; i--)
		cuts->list[i] = cuts->list[i - 1];
	cuts->list[at].cut = *cut;
	cuts->list[at].bytes = bytes;
}

/* Into n tiles, along two axes or, if they are the same, along one. */
static void try_axes(struct cuts *cuts, const struct op_args *args, unsigned n, unsigned first, unsigned second)
{
	for (unsigned along_first = first == second ? n : 2; along_first < n + (first == second);
	     along_first++) {
		uint32_t wanted[PART_AXES_MAX] = {0};
		struct op_cut cut;

		if (n % along_first)
			continue;
		wanted[second] = n / along_first;
		wanted[first] = along_first;
		if (op_cut_grid(args, wanted, 1, &cut) && cut.n_parts == n)
			keep_cut(cuts, &cut, tile_bytes(args, &cut));
	}
}

static void find_cuts(const struct op_args *args, unsigned n, struct cuts *ret)
{
	ret->n = 0;
	for (unsigned i = 0; i < args->op->n_part_axes; i++)
		for (unsigned j = i; j < args->op->n_part_axes; j++)
			try_axes(ret, args, n, i, j);
	while (ret->n > 1 && ret->list[ret->n - 1].bytes > ret->list[0].bytes * BYTES_TOO)
		ret->n--;
}

/* ---- Planning ---- */

/* Makes tile i of the cut. Returns the room for it on its owner. */
static uint64_t make_tile(struct tile *tile, const struct op_cut *cut, unsigned i)
{
	struct job *job = tile->spread->job;
	const struct run_op *whole = &job->ops[0];
	uint64_t room = device_room_bytes(owner_of(tile)), out = job->engine->devices[tile->owner].bytes_out;

	tile->op = (struct run_op){.pinned = whole->kernel->name, .shape = whole->shape};
	op_part(&whole->args, cut, i, &tile->op.args);
	tile->run = (struct run){.ops = &tile->op, .n_ops = 1, .lane = job->engine->next_lane++};
	return out < room ? room - out : 0;
}

/* like: another tile of the cut, which is planned; NULL: none is. */
static bool plan_tile(struct tile *tile, const struct op_cut *cut, unsigned i, const struct tile *like)
{
	const struct planner *planner = owner_of(tile)->planner;
	uint64_t room = make_tile(tile, cut, i);

	if (room == 0)
		return false;
	tile->run.room_bytes = room;
	if (like && op_args_alike(&tile->op.args, &like->op.args) && like->run.device_bytes <= room)
		return plan_run_like(planner, &tile->run, &like->run) == 0;
	return plan_run(planner, &tile->run) == 0 && tile->op.kernel == tile->spread->job->ops[0].kernel &&
	       tile->run.device_bytes <= room;
}

/* Plans the first tile, which is the largest, by the cut with which that takes the shortest time. NULL: none.
 */
static const struct op_cut *choose_cut(struct spread *spread, const struct cuts *cuts)
{
	const struct op_cut *best = NULL, *planned = NULL;
	struct tile *first = &spread->tiles[0];
	double least_us = INFINITY;

	for (unsigned i = cuts->n; i-- > 0;) {
		run_forget_plan(&first->run);
		planned = plan_tile(first, &cuts->list[i].cut, 0, NULL) ? &cuts->list[i].cut : NULL;
		if (!planned || first->run.plan_us >= least_us)
			continue;
		least_us = first->run.plan_us;
		best = planned;
	}
	if (best != planned)
		run_forget_plan(&first->run);
	return best == planned || plan_tile(first, best, 0, NULL) ? best : NULL;
}

static bool plan_tiles(struct spread *spread, const struct cuts *cuts)
{
	double most_us = spread->job->run.estimate_us * SPREAD_GAIN - SPREAD_US;
	const struct op_cut *cut = choose_cut(spread, cuts);
	const struct tile *first = &spread->tiles[0];

	if (!cut || first->run.plan_us > most_us)
		return false;
	for (unsigned i = 1; i < spread->n_tiles; i++)
		if (!plan_tile(&spread->tiles[i], cut, i, first) || spread->tiles[i].run.plan_us > most_us)
			return false;
	return true;
}

/* The reason for the kernel, without how the op would be streamed in one piece. */
static void copy_reason(const struct run_op *op, char ret[WHY_BYTES])
{
	char note[WHY_BYTES] = "";
	size_t n = strlen(op->why), n_note;

	plan_note_parts(&op->cut, note);
	n_note = strlen(note);
	memcpy(ret, op->why, WHY_BYTES);
	if (n >= n_note && strcmp(op->why + n - n_note, note) == 0)
		ret[n - n_note] = '\0';
}

/* For the receipt. */
static void explain(struct spread *spread)
{
	struct run_op *first = &spread->tiles[0].op;
	size_t n;

	copy_reason(&spread->job->ops[0], first->why);
	plan_note_parts(&first->cut, first->why);
	n = strlen(first->why);
	snprintf(first->why + n, WHY_BYTES - n, "; %u tiles at once, on", spread->n_tiles);
	for (unsigned i = 0; i < spread->n_tiles; i++) {
		n = strlen(first->why);
		snprintf(first->why + n, WHY_BYTES - n, "%s %s", i ? "," : "",
		         owner_of(&spread->tiles[i])->name);
	}
}

struct spread *spread_new(struct job *job, const unsigned *owners, unsigned n)
{
	struct spread *spread;
	struct cuts cuts;

	PRE(job->run.n_ops == 1 && owners[0] == job->sched.device);
	find_cuts(&job->ops[0].args, n, &cuts);
	if (cuts.n == 0)
		return NULL;
	spread = calloc(1, sizeof *spread + n * sizeof spread->tiles[0]);
	if (!spread)
		return NULL;
	spread->job = job;
	job->free_spread = spread_free;
	spread->n_tiles = n;
	for (unsigned i = 0; i < n; i++) {
		spread->tiles[i].spread = spread;
		spread->tiles[i].owner = owners[i];
	}
	if (!plan_tiles(spread, &cuts)) {
		spread_free(spread);
		return NULL;
	}
	explain(spread);
	return spread;
}

void spread_free(struct spread *spread)
{
	if (!spread)
		return;
	for (unsigned i = 0; i < spread->n_tiles; i++)
		run_forget_plan(&spread->tiles[i].run);
	free(spread);
}

/* ---- Runs ---- */

void spread_reset(struct spread *spread)
{
	for (unsigned i = 0; i < spread->n_tiles; i++) {
		struct run *run = &spread->tiles[i].run;

		run->next_op = run->next_part = 0;
		run->parts_done = 0;
		run->status = 0;
		run->repeats = spread->job->run.repeats;
		run->upload_us = run->compute_us = run->download_us = 0;
	}
}

static void take_longest(struct run *run, const struct run *tile)
{
	run->upload_us = fmax(run->upload_us, tile->upload_us);
	run->compute_us = fmax(run->compute_us, tile->compute_us);
	run->download_us = fmax(run->download_us, tile->download_us);
}

void spread_gather(struct spread *spread)
{
	struct run *run = &spread->job->run;
	bool all_ended = true;

	run->status = 0;
	run->upload_us = run->compute_us = run->download_us = 0;
	run->slice_us = spread->tiles[0].run.slice_us;
	run->as_graph = spread->tiles[0].run.as_graph;
	for (unsigned i = 0; i < spread->n_tiles; i++) {
		const struct tile *tile = &spread->tiles[i];

		all_ended &= tile_has_ended(tile);
		take_longest(run, &tile->run);
		if (tile->run.status < 0 && run->status == 0) {
			run->status = tile->run.status;
			memcpy(run->error, tile->run.error, sizeof run->error);
		}
	}
	if (!all_ended) /* what failed is told when the others have ended too */
		run->status = 0;
	run->next_op = all_ended ? run->n_ops : 0;
}

double spread_left_us(const struct spread *spread)
{
	double us = 0;

	for (unsigned i = 0; i < spread->n_tiles; i++)
		if (!tile_has_ended(&spread->tiles[i]))
			us = fmax(us, run_left_us(&spread->tiles[i].run));
	return us;
}

void spread_count_parts(const struct spread *spread, uint32_t *ret_parts, uint32_t *ret_done)
{
	*ret_parts = *ret_done = 0;
	for (unsigned i = 0; i < spread->n_tiles; i++) {
		const struct tile *tile = &spread->tiles[i];

		*ret_parts += tile->op.cut.n_parts ? tile->op.cut.n_parts : 1;
		*ret_done += __atomic_load_n(&tile->run.parts_done, __ATOMIC_RELAXED);
	}
}
