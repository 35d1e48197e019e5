/*
 * wgmma_plan.h: how the kernels `wgmma` and `refine` of search divide their work and a block's shared memory.
 *
 * A team is a warpgroup with 64 queries. Two teams of a block have the same queries, and tiles of the base in
 * turn; or they have other queries, and the same tiles, as those of a cluster's blocks have, each of which
 * brings a part of a tile. A unit is some groups of queries, one for each of
 * these blocks, and a piece of the base: every n-th tile.
 */
#ifndef KOPS_KERNELS_SEARCH_WGMMA_PLAN_H
#define KOPS_KERNELS_SEARCH_WGMMA_PLAN_H

#include "search/search.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SEARCH_TEAM        64  /* queries */
#define SEARCH_FEW         8   /* queries that serve as all 64 of a team, again and again */
#define SEARCH_ROWS        256 /* of a tile of the base */
#define SEARCH_LINE        128 /* bytes of a row that a stage holds */
#define SEARCH_LINE_MAX    64  /* lines of a row: sums of more are not as exact as search_score() says */
#define SEARCH_STAGES_MAX  8
#define SEARCH_WGMMA_MOST  64 /* results */
#define SEARCH_SHARED_MAX  (227u << 10)
#define SEARCH_QUERIES_MAX (1u << 24)

struct search_wgmma_plan {
	unsigned teams, sharers; /* of a block; of a cluster */
	unsigned turns;          /* teams that take turns with tiles, each with lists of its own */
	unsigned kept;           /* queries in shared memory, all their columns; 0: they come with each tile */
	unsigned lines;          /* of a row, rounded up */
	unsigned capacity;       /* entries of a query's list */
	unsigned stages;         /* 0: there is no room */
	unsigned shared_bytes;
	unsigned groups, pieces, tiles; /* groups: of the queries of a cluster */
	unsigned clusters;              /* at work */
};

/* Where things are in shared memory, in bytes; lengths: of a tile's rows. barriers: of the stages, full and
 * empty, and of the queries. */
struct search_wgmma_room {
	unsigned listed; /* queries that have lists, in each turn: of few only those of a team's first warp */
	unsigned stage_bytes, stages, lists, counts, lengths, barriers, end;
};

static inline struct search_wgmma_room search_wgmma_room_of(const struct search_wgmma_plan *p)
{
	struct search_wgmma_room r;
	unsigned queries = p->teams * SEARCH_TEAM;

	r.stage_bytes = (SEARCH_ROWS + (p->kept ? 0 : queries)) * SEARCH_LINE;
	r.stages = p->lines * p->kept * SEARCH_LINE;
	r.lists = r.stages + p->stages * r.stage_bytes;
	r.listed = p->kept == SEARCH_FEW ? SEARCH_TEAM / 4 : queries;
	r.counts = r.lists + p->turns * r.listed * p->capacity * (unsigned)sizeof(uint64_t);
	r.lengths = r.counts + p->turns * queries * (unsigned)sizeof(unsigned);
	r.barriers = r.lengths + p->turns * SEARCH_ROWS * (unsigned)sizeof(float);
	r.end = r.barriers + (2 * SEARCH_STAGES_MAX + 1) * (unsigned)sizeof(uint64_t);
	return r;
}

/* So many stages as there is room for, at least 2. */
static inline void search_wgmma_give_room(struct search_wgmma_plan *p)
{
	const unsigned most = SEARCH_SHARED_MAX - 1024; /* for what it takes to begin at a multiple of 1024 */
	struct search_wgmma_room none;

	p->stages = 0;
	none = search_wgmma_room_of(p);
	if (none.end > most)
		return;
	p->stages = (most - none.end) / none.stage_bytes;
	if (p->stages > SEARCH_STAGES_MAX)
		p->stages = SEARCH_STAGES_MAX;
	if (p->stages < 2)
		p->stages = 0;
	p->shared_bytes = search_wgmma_room_of(p).end + 1024;
}

/* The number of pieces with which the clusters end first; few of many groups, as each has results to join. */
static inline unsigned search_wgmma_pieces(unsigned groups, unsigned tiles, unsigned clusters)
{
	const unsigned rounds_most = 4;
	unsigned most = clusters * rounds_most / groups, best = 1;
	uint64_t best_steps = UINT64_MAX;

	most = most > clusters ? clusters : most;
	for (unsigned pieces = 1; pieces == 1 || (pieces <= most && pieces <= tiles); pieces++) {
		uint64_t rounds = ((uint64_t)groups * pieces + clusters - 1) / clusters,
		         steps = rounds * ((tiles + pieces - 1) / pieces);

		if (steps < best_steps)
			best = pieces, best_steps = steps;
	}
	return best;
}

static inline struct search_wgmma_plan search_wgmma_plan_of(const struct op_args *args,
                                                            unsigned multiprocessors)
{
	const struct view *q = &args->views[SEARCH_QUERIES];
	unsigned queries = (unsigned)q->shape[0], each;
	struct search_wgmma_plan p = {2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0};
	bool is_f32 = q->dtype == KOPS_F32;

	p.lines = (unsigned)((q->shape[1] * dtype_size(q->dtype) + SEARCH_LINE - 1) / SEARCH_LINE);
	p.capacity = search_count(args) <= 16 ? 32 : search_count(args) <= 32 ? 64 : 128;
	if (is_f32 && p.capacity < 128)
		p.capacity *= 2;
	p.tiles = (unsigned)((args->views[SEARCH_BASE].shape[0] + SEARCH_ROWS - 1) / SEARCH_ROWS);
	if (queries <= (is_f32 ? SEARCH_FEW : SEARCH_TEAM)) {
		p.teams = 1;
		p.turns = is_f32 ? 2 : 1;
		p.kept = is_f32 ? SEARCH_FEW : SEARCH_TEAM;
		search_wgmma_give_room(&p);
	}
	if (p.stages == 0 && is_f32 && queries <= SEARCH_TEAM) {
		p.teams = 1;
		p.turns = 2;
		p.kept = 0;
		search_wgmma_give_room(&p);
	}
	if (p.stages == 0) {
		p.teams = 2;
		p.turns = 1;
		p.kept = 0;
		p.sharers = queries > 2 * SEARCH_TEAM ? 2 : 1;
		search_wgmma_give_room(&p);
	}
	each = p.teams * SEARCH_TEAM * p.sharers;
	p.groups = queries / each + (queries % each != 0);
	p.clusters = multiprocessors / p.sharers > 0 ? multiprocessors / p.sharers : 1;
	p.pieces = search_wgmma_pieces(p.groups, p.tiles, p.clusters);
	if ((uint64_t)p.groups * p.pieces < p.clusters)
		p.clusters = p.groups * p.pieces;
	return p;
}

bool search_wgmma_supports(const struct op_args *args, const char **ret_why_not);
uint64_t search_wgmma_workspace(const struct op_args *args);
double search_wgmma_ns(const struct op_args *args);

#ifdef __cplusplus
}
#endif

#endif
