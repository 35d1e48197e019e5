/*
 * top_k on the CPU.
 *
 * selecting   An element becomes a candidate if it comes before the k-th of those known so far. Vector loops
 * look for blocks of a row that have one. Whenever the candidates fill their room, quickselect leaves the best
 * k, and the k-th of them is the new threshold. So random rows are read at the speed of memory, and no row
 * takes more than a few comparisons for each element. Rows without unit stride first move through a tile,
 * several at a time. Threads take rows, or pieces of few long ones. reference   plain loops
 */
#include <math.h>
#include <string.h>

#include "common/cpu.h"
#include "common/move.h"
#include "common/threads.h"
#include "top_k/candidates.h"
#include "top_k/top_k.h"

enum { X = TOP_K_X, VALUES = TOP_K_VALUES, INDICES = TOP_K_INDICES };

#define BLOCK         64    /* elements that are looked through together */
#define TILE_ROWS     8     /* rows moved together */
#define TILE_COLS     512   /* elements of each such row */
#define PART_ELEMENTS 65536 /* elements that are worth a thread */
#define PIECE_OF_K    16    /* elements of a piece of a row, for each one wanted */

/* ---- Elements as integers that rise with the number ---- */

/*
 * NAME_most() returns the largest key of n elements; NAME_push() adds those that come before the threshold.
 * Keys are the bits as a two's complement: -0 and 0 have the same, and all NaN the one above infinity's. flip:
 * all ones if the smallest elements come first.
 */
#define ELEMENTS(NAME, INT, UINT, INFINITE)                                                                    \
	static inline __attribute__((always_inline)) INT NAME##_key(UINT bits, UINT flip)                      \
	{                                                                                                      \
		UINT top = (UINT)((UINT)1 << (sizeof(UINT) * 8 - 1)), magnitude = (UINT)(bits & (UINT)~top);   \
		UINT sign = (UINT)(0 - (bits >> (sizeof(UINT) * 8 - 1)));                                      \
		UINT key = (UINT)((magnitude ^ sign) - sign);                                                  \
                                                                                                               \
		return (INT)((magnitude > (INFINITE) ? (UINT)((INFINITE) + 1) : key) ^ flip);                  \
	}                                                                                                      \
                                                                                                               \
	static inline __attribute__((always_inline)) INT NAME##_most(const UINT *x, int64_t n, UINT flip)      \
	{                                                                                                      \
		INT most = NAME##_key(x[0], flip);                                                             \
                                                                                                               \
		CPU_EXTREMES(reduction(max : most))                                                            \
		for (int64_t i = 0; i < n; i++) {                                                              \
			INT key = NAME##_key(x[i], flip);                                                      \
			most = key > most ? key : most;                                                        \
		}                                                                                              \
		return most;                                                                                   \
	}                                                                                                      \
                                                                                                               \
	static void NAME##_push(struct candidates *c, const UINT *x, int64_t n, int64_t index, UINT flip)      \
	{                                                                                                      \
		for (int64_t i = 0; i < n; i++)                                                                \
			candidates_push(c, NAME##_key(x[i], flip), index + i);                                 \
	}                                                                                                      \
                                                                                                               \
	static CPU_CLONES void NAME##_run(struct candidates *c, const void *at, int64_t n, int64_t index,      \
	                                  bool smallest)                                                       \
	{                                                                                                      \
		const UINT *x = at;                                                                            \
		UINT flip = smallest ? (UINT) ~(UINT)0 : 0;                                                    \
                                                                                                               \
		for (int64_t i = 0; i < n; i += BLOCK) {                                                       \
			int64_t length = n - i < BLOCK ? n - i : BLOCK;                                        \
			if (length < BLOCK ? NAME##_most(x + i, length, flip) > c->threshold                   \
			                   : NAME##_most(x + i, BLOCK, flip) > c->threshold)                   \
				NAME##_push(c, x + i, length, index + i, flip);                                \
		}                                                                                              \
	}

ELEMENTS(f16, int16_t, uint16_t, 0x7c00u)
ELEMENTS(bf16, int16_t, uint16_t, 0x7f80u)
ELEMENTS(f32, int32_t, uint32_t, 0x7f800000u)
ELEMENTS(f64, int64_t, uint64_t, 0x7ff0000000000000u)

/* n adjacent elements, the first of which is in this column. */
static void run_of(const struct op_args *args, struct candidates *c, const void *x, int64_t n, int64_t index)
{
	bool smallest = top_k_is(args, TOP_K_SMALLEST);

	index += top_k_first(args);
	switch (args->views[X].dtype) {
	case KOPS_F16:
		f16_run(c, x, n, index, smallest);
		break;
	case KOPS_BF16:
		bf16_run(c, x, n, index, smallest);
		break;
	case KOPS_F32:
		f32_run(c, x, n, index, smallest);
		break;
	default:
		f64_run(c, x, n, index, smallest);
		break;
	}
}

/* ---- Rows ---- */

struct selection {
	const struct op_args *args;
	uint64_t rows, columns;
	unsigned n_parts, pieces; /* pieces of a row, each of which is a part; 1: parts are rows */
	unsigned together;        /* rows that a part goes through at once */
	candidate *room;          /* for each part, `together` times as many as candidates_room() */
};

static bool is_run(const struct view *x)
{
	return x->strides[3] == 1 || x->shape[3] <= 1;
}

/* Decides alike for the workspace and the launch. */
static struct selection selection_of(const struct op_args *args)
{
	const struct view *x = &args->views[X], *values = &args->views[VALUES];
	uint64_t k = top_k_count(args), least = PIECE_OF_K * k > PART_ELEMENTS ? PIECE_OF_K * k : PART_ELEMENTS;
	struct selection s = {.args = args,
	                      .rows = values->shape[0] * values->shape[1] * values->shape[2],
	                      .columns = x->shape[3],
	                      .pieces = 1,
	                      .together = is_run(x) ? 1 : TILE_ROWS};
	uint64_t pieces, most = 2 * (uint64_t)threads_count();

	s.n_parts = threads_parts(s.rows * s.columns, PART_ELEMENTS);
	s.n_parts = s.n_parts < most ? s.n_parts : (unsigned)most;
	pieces = s.rows > 0 ? (s.n_parts + s.rows - 1) / s.rows : 1;
	pieces = pieces < s.columns / least ? pieces : s.columns / least;
	if (pieces > 1) {
		s.pieces = (unsigned)pieces;
		s.n_parts = (unsigned)(s.rows * pieces); /* at most twice `most` */
		s.together = 1;
	} else if (s.n_parts > s.rows && s.rows > 0) {
		s.n_parts = (unsigned)s.rows;
	}
	return s;
}

static candidate *room_of(const struct selection *s, unsigned part)
{
	return s->room + part * s->together * candidates_room(top_k_count(s->args));
}

static const char *element(const struct view *v, int64_t at)
{
	return (const char *)v->data + at * (int64_t)dtype_size(v->dtype);
}

/* Columns [from, to) of up to TILE_ROWS rows from `row` on, which follow each other along axis 2. */
static void select_tiles(const struct selection *s, struct candidates *c, uint64_t row, int64_t rows,
                         int64_t from, int64_t to)
{
	const struct view *x = &s->args->views[X];
	size_t size = dtype_size(x->dtype);
	double tile[TILE_ROWS * TILE_COLS];

	for (int64_t i = from; i < to; i += TILE_COLS) {
		int64_t width = to - i < TILE_COLS ? to - i : TILE_COLS;

		move_matrix(tile, width, 1, element(x, view_row(x, row) + i * x->strides[3]), x->strides[2],
		            x->strides[3], (uint64_t)rows, (uint64_t)width, size);
		for (int64_t k = 0; k < rows; k++)
			run_of(s->args, &c[k], (const char *)tile + (size_t)(k * width) * size, width, i);
	}
}

static void select_columns(const struct selection *s, struct candidates *c, uint64_t row, int64_t rows,
                           int64_t from, int64_t to)
{
	const struct view *x = &s->args->views[X];

	if (is_run(x))
		run_of(s->args, c, element(x, view_row(x, row) + from), to - from, from);
	else
		select_tiles(s, c, row, rows, from, to);
}

/* Adds what parts before this one have found in the row. */
static void take_carried(const struct op_args *args, const struct top_k_carried *carried, struct candidates *c)
{
	if (!args->params.plain.flags[TOP_K_GOES_ON])
		return;
	for (uint32_t i = 0; i < c->k && carried[i].is_there; i++)
		candidates_add(c, candidate_of((int64_t)carried[i].key, carried[i].index));
}

/* Returns the element of a candidate that was carried. */
static uint64_t carried_bits(const struct top_k_carried *carried, uint32_t k, candidate wanted)
{
	uint32_t first = 0, end = k;

	while (end - first > 1) {
		uint32_t middle = first + (end - first) / 2;
		const struct top_k_carried *c = &carried[middle];
		if (c->is_there && candidate_of((int64_t)c->key, c->index) >= wanted)
			first = middle;
		else
			end = middle;
	}
	return carried[first].bits;
}

/* The elements of the candidates: those of the row, or of parts before. */
static void find_elements(const struct op_args *args, const struct candidates *c, uint64_t row,
                          struct top_k_carried found[TOP_K_MAX])
{
	const struct view *x = &args->views[X];
	const struct top_k_carried *carried = top_k_carried_row(args, row);
	int64_t x0 = view_row(x, row);

	for (uint32_t i = 0; i < c->n; i++) {
		int64_t index = candidate_index(c->list[i]), here = index - top_k_first(args);
		found[i] = (struct top_k_carried){
		    .key = (uint64_t)candidate_key(c->list[i]), .index = (uint32_t)index, .is_there = true};
		if (here < 0)
			found[i].bits = carried_bits(carried, c->k, c->list[i]);
		else
			memcpy(&found[i].bits, element(x, x0 + here * x->strides[3]), dtype_size(x->dtype));
	}
}

/* Puts their places in `found` into the low bits of a list that is sorted by index. */
static void order_by_index(struct candidates *c, const struct top_k_carried *found)
{
	for (uint32_t i = 0; i < c->n; i++)
		c->list[i] = (candidate)~found[i].index << 32 | i;
	candidates_sort(c->list, c->n);
}

static void store(const struct op_args *args, struct candidates *c, uint64_t row)
{
	const struct view *values = &args->views[VALUES], *indices = &args->views[INDICES];
	struct top_k_carried *carried = top_k_carried_row(args, row), found[TOP_K_MAX];
	int64_t to = view_row(values, row), to_index = view_is_absent(indices) ? 0 : view_row(indices, row);
	size_t size = dtype_size(values->dtype);

	if (carried)
		take_carried(args, carried, c);
	candidates_finish(c);
	find_elements(args, c, row, found);
	for (uint32_t i = 0; carried && i < c->k; i++)
		carried[i] = i < c->n ? found[i] : (struct top_k_carried){0};
	if (top_k_by_index(args))
		order_by_index(c, found);
	for (uint32_t i = 0; i < c->n; i++) {
		const struct top_k_carried *f = &found[top_k_by_index(args) ? (uint32_t)c->list[i] : i];
		memcpy((char *)values->data + (to + i * values->strides[3]) * (int64_t)size, &f->bits, size);
		if (!view_is_absent(indices))
			((int32_t *)indices->data)[to_index + i * indices->strides[3]] = (int32_t)f->index;
	}
}

static void whole_rows(void *ctx, unsigned part)
{
	const struct selection *s = ctx;
	uint64_t row = threads_bound(s->rows, part, s->n_parts),
	         end = threads_bound(s->rows, part + 1, s->n_parts), along = s->args->views[X].shape[2];
	uint32_t k = top_k_count(s->args);

	while (row < end) {
		struct candidates c[TILE_ROWS];
		uint64_t left = along - row % along, n = left < end - row ? left : end - row;

		n = n < s->together ? n : s->together;
		for (uint64_t i = 0; i < n; i++)
			candidates_start(&c[i], room_of(s, part) + i * candidates_room(k), k);
		select_columns(s, c, row, (int64_t)n, 0, (int64_t)s->columns);
		for (uint64_t i = 0; i < n; i++)
			store(s->args, &c[i], row + i);
		row += n;
	}
}

/* Leaves the best k of a piece at the begin of the part's room. */
static void piece_of_row(void *ctx, unsigned part)
{
	const struct selection *s = ctx;
	unsigned piece = part % s->pieces;
	struct candidates c;

	candidates_start(&c, room_of(s, part), top_k_count(s->args));
	select_columns(s, &c, part / s->pieces, 1, (int64_t)threads_bound(s->columns, piece, s->pieces),
	               (int64_t)threads_bound(s->columns, piece + 1, s->pieces));
	candidates_reduce(&c);
}

static void join_pieces(const struct selection *s)
{
	uint32_t k = top_k_count(s->args);

	for (uint64_t row = 0; row < s->rows; row++) {
		unsigned first = (unsigned)row * s->pieces;
		struct candidates c;

		candidates_start(&c, room_of(s, first), k);
		c.n = k;
		for (unsigned piece = 1; piece < s->pieces; piece++)
			for (uint32_t i = 0; i < k; i++)
				candidates_add(&c, room_of(s, first + piece)[i]);
		store(s->args, &c, row);
	}
}

static uint64_t workspace(const struct op_args *args)
{
	struct selection s = selection_of(args);

	return cpu_align((uint64_t)s.n_parts * s.together * candidates_room(top_k_count(args)) *
	                 sizeof(candidate));
}

static int selecting(const struct op_args *args, const struct launch *launch)
{
	struct selection s = selection_of(args);

	s.room = launch->workspace;
	threads_run(s.n_parts, s.pieces > 1 ? piece_of_row : whole_rows, &s);
	if (s.pieces > 1)
		join_pieces(&s);
	return 0;
}

static double time_ns(const struct op_args *args)
{
	const double row_ns = 100, element_ns = 0.15, moved_ns = 1.2;
	const struct view *x = &args->views[X];
	double elements = (double)view_elements(x), k = top_k_count(args), columns = (double)x->shape[3],
	       rows = columns > 0 ? elements / columns : 0, parts = elements / PART_ELEMENTS, ns;
	/* Elements that come before the k-th of those before them, in a row of random order. */
	double candidates = k * (2 + log(fmax(columns, k) / k));

	ns = rows * (row_ns + candidates * 8 + k * log2(k + 1) * 3) +
	     elements * (element_ns + (is_run(x) ? 0 : moved_ns));
	return fmax(ns / cpu_threads(parts), cpu_memory_ns(args, parts));
}

static double reference_ns(const struct op_args *args)
{
	return cpu_reference_ns(args) + (double)view_elements(&args->views[X]) * top_k_count(args) * 2;
}

static const struct kernel kernels[] = {
    {.name = "selecting",
     .idea = "vector loops find blocks with candidates, quickselect, threads",
     .dtypes = "f32 f64 f16 bf16",
     .takes = "any strides",
     .supports = cpu_reference_supports,
     .workspace = workspace,
     .time_ns = time_ns,
     .carries = true,
     .launch = selecting},
    CPU_REFERENCE_KERNEL_OF("f32 f64 f16 bf16", reference_ns),
};

const struct kernel_list top_k_cpu_kernels = {kernels, sizeof kernels / sizeof kernels[0]};
