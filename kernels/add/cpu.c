/*
 * add on the CPU. The rules have sorted and folded the axes: the last one is y's innermost. Along it each
 * operand has stride 1, 0 (repeated) or another; the first two kinds have vector loops.
 *
 * vectorised  vector loops along the last axis; an operand of another stride is moved through a 64×64
 *             tile first, so that its cache lines are used whole; threads
 * reference   plain loops
 */
#include "cpu.h"
#include "move.h"
#include "threads.h"

enum { A, B, Y };

#define TILE          64    /* extent of a slab when some operand goes through a tile */
#define RUN           16384 /* else: columns at most, and elements */
#define PART_ELEMENTS 65536

/* restrict would be wrong: y may be a or b. Equal addresses are still safe to vectorise. */
CPU_CLONES static void add_arrays(float *y, const float *a, const float *b, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		y[i] = a[i] + b[i];
}

CPU_CLONES static void add_scalar(float *y, const float *a, float b, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		y[i] = a[i] + b;
}

static void fill(float *y, float value, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		y[i] = value;
}

/* Rows of a slab: element (i, j) at data[i * pitch + j * step]; step is 0 or 1. */
struct plane {
	float *data;
	int64_t pitch, step;
};

static void add_row(float *y, const struct plane *a, const struct plane *b, int64_t row, int64_t n)
{
	const float *from_a = a->data + row * a->pitch, *from_b = b->data + row * b->pitch;

	if (a->step == 1 && b->step == 1)
		add_arrays(y, from_a, from_b, n);
	else if (a->step == 1)
		add_scalar(y, from_a, *from_b, n);
	else if (b->step == 1)
		add_scalar(y, from_b, *from_a, n);
	else
		fill(y, *from_a + *from_b, n);
}

/*
 * The output cut in slabs of rows (axis 2) × cols (axis 3), numbered down axis 2 first: an operand that jumps
 * along axis 3 is likely to be contiguous there.
 */
struct sum {
	const struct view *v;
	uint64_t rows, cols, down, across, n_slabs;
	unsigned n_parts;
};

struct slab {
	uint64_t at[4], rows, cols;
};

static struct slab locate(const struct sum *s, uint64_t i)
{
	const uint64_t *shape = s->v[Y].shape;
	uint64_t row = i % s->down * s->rows, col = i / s->down % s->across * s->cols;
	uint64_t outer = i / s->across / s->down;
	uint64_t rows = shape[2] - row, cols = shape[3] - col;

	return (struct slab){{outer / shape[1], outer % shape[1], row, col},
	                     rows < s->rows ? rows : s->rows,
	                     cols < s->cols ? cols : s->cols};
}

static bool jumps(const struct view *v)
{
	return v->strides[3] != 0 && v->strides[3] != 1;
}

static struct plane plane_of(const struct view *v, const struct slab *slab)
{
	struct plane p = {v->data, v->strides[2], v->strides[3]};

	for (unsigned d = 0; d < 4; d++)
		p.data += (int64_t)slab->at[d] * v->strides[d];
	return p;
}

/* The slab of an input, by way of `tile` if its columns are apart. */
static struct plane load(const struct view *v, const struct slab *slab, float tile[TILE * TILE])
{
	struct plane p = plane_of(v, slab);

	if (!jumps(v))
		return p;
	move_matrix(tile, TILE, 1, p.data, p.pitch, p.step, slab->rows, slab->cols, sizeof *tile);
	return (struct plane){tile, TILE, 1};
}

static void sum_slab(const struct view *v, const struct slab *slab)
{
	float tile_a[TILE * TILE], tile_b[TILE * TILE], tile_y[TILE * TILE];
	struct plane a = load(&v[A], slab, tile_a), b = load(&v[B], slab, tile_b), y = plane_of(&v[Y], slab),
	             to = y;

	if (jumps(&v[Y]))
		to = (struct plane){tile_y, TILE, 1};
	for (int64_t i = 0; i < (int64_t)slab->rows; i++)
		add_row(to.data + i * to.pitch, &a, &b, i, (int64_t)slab->cols);
	if (jumps(&v[Y]))
		move_matrix(y.data, y.pitch, y.step, tile_y, TILE, 1, slab->rows, slab->cols, sizeof *tile_y);
}

static void sum_part(void *ctx, unsigned part)
{
	const struct sum *s = ctx;
	uint64_t to = threads_bound(s->n_slabs, part + 1, s->n_parts);

	for (uint64_t i = threads_bound(s->n_slabs, part, s->n_parts); i < to; i++) {
		struct slab slab = locate(s, i);
		sum_slab(s->v, &slab);
	}
}

static uint64_t ceil_div(uint64_t a, uint64_t b)
{
	return a / b + (a % b != 0);
}

static int launch_vectorised(const struct op_args *args, const struct launch *launch)
{
	const struct view *v = args->views;
	const uint64_t *shape = v[Y].shape;
	struct sum s = {.v = v, .rows = TILE, .cols = TILE};

	(void)launch;
	if (!jumps(&v[A]) && !jumps(&v[B]) && !jumps(&v[Y])) {
		s.cols = shape[3] < RUN ? shape[3] : RUN;
		s.rows = RUN / s.cols;
	}
	s.down = ceil_div(shape[2], s.rows);
	s.across = ceil_div(shape[3], s.cols);
	s.n_slabs = shape[0] * shape[1] * s.down * s.across;
	s.n_parts = threads_parts(view_elements(&v[Y]), PART_ELEMENTS);
	threads_run(s.n_parts, sum_part, &s);
	return 0;
}

static const struct kernel rows[] = {
    {.name = "vectorised",
     .idea = "vector loops, operands without unit stride by way of 64x64 tiles, threads",
     .dtypes = "f32",
     .supports = cpu_reference_supports,
     .launch = launch_vectorised},
    CPU_REFERENCE_ROW("f32"),
};

const struct kernel_list add_cpu_rows = {rows, sizeof rows / sizeof rows[0]};
