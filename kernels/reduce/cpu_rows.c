#include "reduce/cpu_rows.h"

#include <math.h>
#include <string.h>

#include "common/cpu.h"
#include "common/move.h"
#include "common/threads.h"

enum { X, Y };

#define LONG          256   /* elements of a row that is reduced by itself */
#define TILE_ROWS     64    /* rows moved together */
#define TILE_COLS     256   /* elements of each such row */
#define PART_ELEMENTS 65536 /* elements that are worth a thread */

static const char *element(const struct view *v, int64_t at)
{
	return (const char *)v->data + at * (int64_t)dtype_size(v->dtype);
}

/* Returns true if the elements of a row are adjacent. */
static bool is_run(const struct view *x)
{
	return x->strides[3] == 1 || x->shape[3] <= 1;
}

/*
 * Returns how many rows to reduce together: long ones one by one, else some that follow each other along axis
 * 2.
 */
static int64_t rows_together(const struct view *x, uint64_t row, uint64_t end)
{
	uint64_t left = x->shape[2] - row % x->shape[2];

	if (is_run(x) && x->shape[3] > LONG)
		return 1;
	left = left < end - row ? left : end - row;
	return left < TILE_ROWS ? (int64_t)left : TILE_ROWS;
}

/* A reduction, and what it takes from launch(). */
struct reduction {
	const struct op_args *args;
	const struct reduce_steps *steps;
	uint64_t rows, columns;
	unsigned n_parts;
	struct reduce_found *partials; /* one for each part and row; NULL: parts are whole rows */
};

/* Moves columns [from, to) of `rows` rows from `row` on, which follow each other along axis 2, through a tile.
 */
static void reduce_tiles(const struct reduction *r, uint64_t row, int64_t rows, int64_t from, int64_t to,
                         struct reduce_found found[TILE_ROWS])
{
	const struct view *x = &r->args->views[X];
	size_t size = dtype_size(x->dtype);
	double tile[TILE_ROWS * TILE_COLS / 2];
	int64_t cols = size <= sizeof(float) ? TILE_COLS : TILE_COLS / 2;

	for (int64_t i = from; i < to; i += cols) {
		int64_t width = to - i < cols ? to - i : cols;

		move_matrix(tile, width, 1, element(x, view_row(x, row) + i * x->strides[3]), x->strides[2],
		            x->strides[3], (uint64_t)rows, (uint64_t)width, size);
		for (int64_t k = 0; k < rows; k++)
			r->steps->join_run(r->args, (const char *)tile + (size_t)(k * width) * size, i, width,
			                   &found[k]);
	}
}

/* The same of any rows. Writes one result for each. */
static void reduce_columns(const struct reduction *r, uint64_t row, int64_t rows, int64_t from, int64_t to,
                           struct reduce_found found[TILE_ROWS])
{
	const struct view *x = &r->args->views[X];
	int64_t at = view_row(x, row) + from;

	for (int64_t k = 0; k < rows; k++)
		found[k] = r->steps->nothing;
	if (!is_run(x))
		reduce_tiles(r, row, rows, from, to, found);
	else if (r->steps->short_rows && to - from <= REDUCE_SHORT && x->dtype == KOPS_F32)
		r->steps->short_rows(found, (const float *)(const void *)element(x, at), x->strides[2], rows,
		                     to - from);
	else
		for (int64_t k = 0; k < rows; k++)
			r->steps->join_run(r->args, element(x, at + k * x->strides[2]), from, to - from,
			                   &found[k]);
}

/* ---- Threads ---- */

static void whole_rows(void *ctx, unsigned part)
{
	const struct reduction *r = ctx;
	uint64_t row = threads_bound(r->rows, part, r->n_parts),
	         end = threads_bound(r->rows, part + 1, r->n_parts);
	struct reduce_found found[TILE_ROWS];

	while (row < end) {
		int64_t n = rows_together(&r->args->views[X], row, end);

		reduce_columns(r, row, n, 0, (int64_t)r->columns, found);
		for (int64_t i = 0; i < n; i++)
			r->steps->store(r->args, row + (uint64_t)i, &found[i]);
		row += (uint64_t)n;
	}
}

static void some_columns(void *ctx, unsigned part)
{
	const struct reduction *r = ctx;
	int64_t from = (int64_t)threads_bound(r->columns, part, r->n_parts);
	int64_t to = (int64_t)threads_bound(r->columns, part + 1, r->n_parts);
	struct reduce_found *partials = r->partials + part * r->rows, found[TILE_ROWS];

	for (uint64_t row = 0; row < r->rows;) {
		int64_t n = rows_together(&r->args->views[X], row, r->rows);

		reduce_columns(r, row, n, from, to, found);
		memcpy(partials + row, found, (size_t)n * sizeof *found);
		row += (uint64_t)n;
	}
}

/* Returns how many parts each row has if there are fewer rows than parts; 0: parts are whole rows. */
static unsigned column_parts(uint64_t rows, uint64_t columns)
{
	unsigned parts = threads_parts(rows * columns, PART_ELEMENTS);

	return parts > 1 && rows < parts ? parts : 0;
}

static void shape_of(const struct op_args *args, uint64_t *ret_rows, uint64_t *ret_columns)
{
	*ret_rows = view_elements(&args->views[Y]);
	*ret_columns = args->views[X].shape[3];
}

uint64_t reduce_rows_workspace(const struct op_args *args)
{
	uint64_t rows, columns;

	shape_of(args, &rows, &columns);
	return cpu_align(column_parts(rows, columns) * rows * sizeof(struct reduce_found));
}

double reduce_rows_ns(const struct op_args *args, double element_ns)
{
	const double row_ns = 15, moved_ns = 1.2;
	const struct view *x = &args->views[X];
	double elements = (double)view_elements(x), parts, ns;
	uint64_t rows, columns;

	shape_of(args, &rows, &columns);
	if (rows == 0)
		return 0;
	if (is_run(x)) {
		parts = elements / PART_ELEMENTS;
		ns = ((double)rows * row_ns + elements * element_ns) / cpu_threads(parts);
		return fmax(ns, cpu_memory_ns(args, parts));
	}
	parts = elements / PART_ELEMENTS;
	ns = ((double)rows * row_ns + elements * (element_ns + moved_ns)) / cpu_threads(parts);
	return ns + cpu_memory_ns(args, parts);
}

void reduce_rows_run(const struct op_args *args, const struct reduce_steps *steps, const struct launch *launch)
{
	struct reduction r = {.args = args, .steps = steps};

	shape_of(args, &r.rows, &r.columns);
	r.n_parts = column_parts(r.rows, r.columns);
	if (r.n_parts == 0) {
		r.n_parts = threads_parts(r.rows * (r.columns ? r.columns : 1), PART_ELEMENTS);
		threads_run(r.n_parts, whole_rows, &r);
		return;
	}
	r.partials = launch->workspace;
	threads_run(r.n_parts, some_columns, &r);
	for (uint64_t row = 0; row < r.rows; row++) {
		struct reduce_found found = r.partials[row];

		for (unsigned part = 1; part < r.n_parts; part++)
			steps->join(args, &found, &r.partials[part * r.rows + row]);
		steps->store(args, row, &found);
	}
}
