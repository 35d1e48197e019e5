#include "job/spread.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/rules.h"
#include "plan/exchange.h"
#include "plan/plan.h"

/* What it takes to start and gather tiles on several devices, and the gain that is worth keeping others from
 * them. */
#define SPREAD_US   100.0
#define SPREAD_GAIN 0.9

/* What exchanging operands has to gain, whose runs are not recorded as graphs; smaller operands are uploaded by
 * both. A peer that is less than twice as fast as the link may be reached by the link itself. */
#define EXCHANGE_GAIN      0.97
#define EXCHANGE_MIN_BYTES (1u << 20)
#define EXCHANGE_RATE_MIN  2.0 /* of the link's */

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
	double rate; /* at which the owners may exchange operands; 0: they do not */
	struct {
		struct op_cut cut;
		double bytes; /* of a tile, which come from host memory */
		bool may_exchange;
	} list[CUTS_MAX]; /* those with the fewest bytes, in that order */
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

/* ---- Operands that both tiles need ---- */

/* At how many bytes per us each of two owners copies from the other; 0: they do not exchange anything. */
static double exchange_rate(const struct spread *spread)
{
	const struct device *a = owner_of(&spread->tiles[0]), *b = owner_of(&spread->tiles[1]);
	double rate;

	if (spread->n_tiles != 2 || !a->driver->peer_rate)
		return 0;
	rate = fmin(a->driver->peer_rate(a->dev, b->dev), b->driver->peer_rate(b->dev, a->dev));
	return rate < EXCHANGE_RATE_MIN * fmax(a->info->link_rate, b->info->link_rate) ? 0 : rate;
}

/* The inputs in host memory that no axis of the cut divides, and that are worth it: bit v. */
static unsigned shared_operands(const struct op_args *args, const struct op_cut *cut)
{
	unsigned shared = 0;

	for (unsigned v = 0; v < op_first_output(args->op); v++) {
		bool is_divided = false;

		for (unsigned axis = 0; axis < args->op->n_part_axes; axis++)
			is_divided |= cut->axes[axis].n > 1 && args->op->part_axes[axis].axis[v] != PART_NONE;
		if (!is_divided && view_is_in_host_memory(&args->views[v]) && op_reads(args, v) &&
		    rules_bytes(&args->views[v]) >= EXCHANGE_MIN_BYTES)
			shared |= 1u << v;
	}
	return shared;
}

/* ---- Planning ---- */

/* How a job may be spread. */
struct way {
	unsigned i; /* of the cuts */
	struct op_cut cut;
	double rate; /* at which the owners exchange operands; 0: they do not */
};

/* Makes tile i of the cut. Returns the room for it on its owner. */
static uint64_t make_tile(struct tile *tile, const struct way *way, unsigned i)
{
	struct job *job = tile->spread->job;
	const struct run_op *whole = &job->ops[0];
	uint64_t room = device_room_bytes(owner_of(tile)), out = job->engine->devices[tile->owner].bytes_out;

	run_forget_plan(&tile->run);
	tile->op = (struct run_op){.pinned = whole->kernel->name, .shape = whole->shape};
	op_part(&whole->args, &way->cut, i, &tile->op.args);
	if (way->rate > 0) {
		tile->op.shared.operands = shared_operands(&whole->args, &way->cut);
		tile->op.shared.rate = way->rate;
	}
	tile->run = (struct run){.ops = &tile->op, .n_ops = 1, .lane = job->engine->next_lane++};
	return out < room ? room - out : 0;
}

/* like: another tile of the cut, which is planned; NULL: none is. */
static bool plan_tile(struct tile *tile, const struct way *way, unsigned i, const struct tile *like)
{
	const struct planner *planner = owner_of(tile)->planner;
	uint64_t room = make_tile(tile, way, i);

	if (room == 0)
		return false;
	tile->run.room_bytes = room;
	if (like && op_args_alike(&tile->op.args, &like->op.args) && like->run.device_bytes <= room)
		return plan_run_like(planner, &tile->run, &like->run) == 0;
	return plan_run(planner, &tile->run) == 0 && tile->op.kernel == tile->spread->job->ops[0].kernel &&
	       tile->run.device_bytes <= room;
}

/* Plans the first tile, which is the largest. Returns true if by this way it takes less time than so far. */
static bool try_way(struct spread *spread, const struct way *way, double *least_us)
{
	struct tile *first = &spread->tiles[0];
	double us;

	if (!plan_tile(first, way, 0, NULL))
		return false;
	us = first->run.plan_us / (way->rate > 0 ? EXCHANGE_GAIN : 1);
	if (us >= *least_us)
		return false;
	*least_us = us;
	return true;
}

/* Plans the first tile by the way with which it takes the shortest time. Returns false if there is none. */
static bool choose_way(struct spread *spread, const struct cuts *cuts, struct way *ret)
{
	double least_us = INFINITY;
	bool is_best = false;

	for (unsigned i = 2 * cuts->n; i-- > 0;) {
		struct way way = {.i = i / 2, .cut = cuts->list[i / 2].cut, .rate = i % 2 ? cuts->rate : 0};

		if (i % 2 && !cuts->list[i / 2].may_exchange)
			continue;
		is_best = try_way(spread, &way, &least_us);
		if (is_best)
			*ret = way;
	}
	if (is_best || !isfinite(least_us))
		return is_best;
	return plan_tile(&spread->tiles[0], ret, 0, NULL);
}

/* Returns false if it does not pay. The first tile is planned. */
static bool plan_tiles(struct spread *spread, const struct way *way)
{
	double most_us = spread->job->run.estimate_us * SPREAD_GAIN - SPREAD_US;
	struct tile *first = &spread->tiles[0];

	if (first->run.plan_us > most_us)
		return false;
	for (unsigned i = 1; i < spread->n_tiles; i++)
		if (!plan_tile(&spread->tiles[i], way, i, first) || spread->tiles[i].run.plan_us > most_us)
			return false;
	if (way->rate > 0)
		spread->exchange = exchange_new(&first->run, &spread->tiles[1].run);
	return way->rate <= 0 || spread->exchange;
}

/* In the best way; both tiles may turn out to be too different to exchange operands that way. */
static bool plan_spread(struct spread *spread, struct cuts *cuts)
{
	struct way way;

	cuts->rate = exchange_rate(spread);
	for (unsigned i = 0; i < cuts->n; i++)
		cuts->list[i].may_exchange =
		    cuts->rate > 0 && shared_operands(&spread->job->ops[0].args, &cuts->list[i].cut);
	while (choose_way(spread, cuts, &way)) {
		if (plan_tiles(spread, &way))
			return true;
		if (way.rate <= 0)
			return false;
		cuts->list[way.i].may_exchange = false;
	}
	return false;
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
	n = strlen(first->why);
	if (spread->exchange)
		snprintf(first->why + n, WHY_BYTES - n, ", which exchange operands");
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
	if (!plan_spread(spread, &cuts)) {
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
	exchange_free(spread->exchange);
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

void spread_begin_exchange(struct spread *spread)
{
	bool is_on = true;

	if (!spread->exchange)
		return;
	for (unsigned i = 0; i < spread->n_tiles; i++)
		is_on &= !tile_has_ended(&spread->tiles[i]) && owner_of(&spread->tiles[i])->work_out == 0;
	exchange_begin(spread->exchange, is_on);
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
