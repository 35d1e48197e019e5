/*
 * cpu.c: the CPU's loop over the views of an op that computes element by element. It is fastest where
 * the axes are sorted and folded, so that the last one is y's innermost. Along it each operand has stride 1, 0
 * (repeated) or another. An operand with another stride is first moved through a 64×64 tile, so that its cache
 * lines are used whole.
 */
#include "elementwise/elementwise.h"

#include <math.h>

#include "common/cpu.h"
#include "common/move.h"
#include "common/threads.h"

#define TILE          64    /* extent of a slab if an operand goes through a tile */
#define RUN           16384 /* otherwise: most columns of a slab, and most elements */
#define PART_ELEMENTS 65536

/* Rows of a slab. Element (i, j) is at data[i * pitch + j * step], of `size` bytes; step is 0 or 1. */
struct plane {
	char *data;
	int64_t pitch, step, size;
};

static char *plane_row(const struct plane *p, int64_t row)
{
	return p->data + row * p->pitch * p->size;
}

/*
 * The output, cut into slabs of rows (axis 2) × cols (axis 3). They are numbered along axis 2 first: an operand
 * that jumps along axis 3 is likely to be contiguous there.
 */
struct work {
	const struct view *inputs, *y;
	unsigned n_inputs;
	elementwise_row *row;
	const void *ctx;
	uint64_t rows, cols, down, across, n_slabs;
	unsigned n_parts;
};

struct slab {
	uint64_t at[4], rows, cols;
};

static struct slab locate(const struct work *w, uint64_t i)
{
	const uint64_t *shape = w->y->shape;
	uint64_t row = i % w->down * w->rows, col = i / w->down % w->across * w->cols;
	uint64_t outer = i / w->across / w->down;
	uint64_t rows = shape[2] - row, cols = shape[3] - col;

	return (struct slab){{outer / shape[1], outer % shape[1], row, col},
	                     rows < w->rows ? rows : w->rows,
	                     cols < w->cols ? cols : w->cols};
}

static bool jumps(const struct view *v)
{
	return v->strides[3] != 0 && v->strides[3] != 1;
}

static struct plane plane_of(const struct view *v, const struct slab *slab)
{
	struct plane p = {v->data, v->strides[2], v->strides[3], (int64_t)dtype_size(v->dtype)};

	for (unsigned d = 0; d < 4; d++)
		p.data += (int64_t)slab->at[d] * v->strides[d] * p.size;
	return p;
}

/* Holds a slab of any dtype of these ops. */
typedef double tile[TILE * TILE];

static struct plane plane_in(tile room, const struct view *v)
{
	return (struct plane){(char *)room, TILE, 1, (int64_t)dtype_size(v->dtype)};
}

static void move_plane(const struct plane *to, const struct plane *from, const struct slab *slab)
{
	move_matrix(to->data, to->pitch, to->step, from->data, from->pitch, from->step, slab->rows, slab->cols,
	            (size_t)to->size);
}

/* Returns the slab of an input, moved into `room` if its columns are apart. */
static struct plane load(const struct view *v, const struct slab *slab, tile room)
{
	struct plane p = plane_of(v, slab), dense = plane_in(room, v);

	if (!jumps(v))
		return p;
	move_plane(&dense, &p, slab);
	return dense;
}

static void compute_slab(const struct work *w, const struct slab *slab)
{
	tile tiles[ELEMENTWISE_INPUTS_MAX], tile_y;
	struct plane x[ELEMENTWISE_INPUTS_MAX], y = plane_of(w->y, slab),
	                                        to = jumps(w->y) ? plane_in(tile_y, w->y) : y;
	const void *from[ELEMENTWISE_INPUTS_MAX] = {NULL};
	bool repeats[ELEMENTWISE_INPUTS_MAX] = {false};

	for (unsigned v = 0; v < w->n_inputs; v++) {
		x[v] = load(&w->inputs[v], slab, tiles[v]);
		repeats[v] = x[v].step == 0;
	}
	for (int64_t i = 0; i < (int64_t)slab->rows; i++) {
		for (unsigned v = 0; v < w->n_inputs; v++)
			from[v] = plane_row(&x[v], i);
		w->row(w->ctx, plane_row(&to, i), from, repeats, (int64_t)slab->cols);
	}
	if (jumps(w->y))
		move_plane(&y, &to, slab);
}

static void compute_part(void *ctx, unsigned part)
{
	const struct work *w = ctx;
	uint64_t to = threads_bound(w->n_slabs, part + 1, w->n_parts);

	for (uint64_t i = threads_bound(w->n_slabs, part, w->n_parts); i < to; i++) {
		struct slab slab = locate(w, i);
		compute_slab(w, &slab);
	}
}

static uint64_t ceil_div(uint64_t a, uint64_t b)
{
	return a / b + (a % b != 0);
}

static unsigned count_jumping(const struct work *w)
{
	unsigned n = jumps(w->y);

	for (unsigned v = 0; v < w->n_inputs; v++)
		n += jumps(&w->inputs[v]);
	return n;
}

static struct work work_of(const struct view *views, unsigned n_inputs)
{
	const uint64_t *shape = views[n_inputs].shape;
	struct work w = {
	    .inputs = views, .y = &views[n_inputs], .n_inputs = n_inputs, .rows = TILE, .cols = TILE};

	if (count_jumping(&w) == 0) {
		w.cols = shape[3] < RUN ? shape[3] : RUN;
		w.rows = RUN / w.cols;
	}
	w.down = ceil_div(shape[2], w.rows);
	w.across = ceil_div(shape[3], w.cols);
	w.n_slabs = shape[0] * shape[1] * w.down * w.across;
	w.n_parts = threads_parts(view_elements(w.y), PART_ELEMENTS);
	return w;
}

double elementwise_cpu_ns(const struct op_args *args, const struct view *views, unsigned n_inputs,
                          double element_ns)
{
	const double slab_ns = 60, row_ns = 8, moved_ns = 2.5;
	const struct view *y = &views[n_inputs];
	double elements = (double)view_elements(y);

	if (elements == 0)
		return 0;
	struct work w = work_of(views, n_inputs);
	unsigned moved = count_jumping(&w);
	double rows = (double)y->shape[0] * (double)y->shape[1] * (double)y->shape[2] * (double)w.across;
	double ns = (double)w.n_slabs * slab_ns + rows * row_ns + elements * (moved * moved_ns + element_ns);
	double parts = fmin(w.n_parts, (double)w.n_slabs), memory_ns = cpu_memory_ns(args, parts);
	return moved ? ns / cpu_threads(parts) + memory_ns : fmax(ns / cpu_threads(parts), memory_ns);
}

void elementwise_run(const struct view *views, unsigned n_inputs, elementwise_row *row, const void *ctx)
{
	struct work w = work_of(views, n_inputs);

	w.row = row;
	w.ctx = ctx;
	threads_run(w.n_parts, compute_part, &w);
}
