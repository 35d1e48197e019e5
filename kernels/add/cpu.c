/*
 * add on the CPU. The rules have sorted and folded the axes: the last one is y's innermost. Along it each
 * operand has stride 1, 0 (repeated) or another; the first two kinds have vector loops.
 *
 * vectorised  vector loops along the last axis, the 16-bit types widened and rounded in them; an operand of
 * another stride is moved through a 64×64 tile first, so that its cache lines are used whole; threads reference
 * plain loops
 */
#include <math.h>

#include "common/cpu.h"
#include "common/half.h"
#include "common/move.h"
#include "common/threads.h"

enum { A, B, Y };

#define TILE          64    /* extent of a slab when some operand goes through a tile */
#define RUN           16384 /* else: columns at most, and elements */
#define PART_ELEMENTS 65536

static inline float as_is(float x)
{
	return x;
}

static inline double as_is_f64(double x)
{
	return x;
}

/* restrict would be wrong: y may be a or b. Equal addresses are still safe to vectorise. */
#define DEFINE_ADD(name, type, wide, widen, narrow)                                                            \
	CPU_CLONES static void name##_arrays(void *to, const void *from_a, const void *from_b, int64_t n)      \
	{                                                                                                      \
		type *y = to;                                                                                  \
		const type *a = from_a, *b = from_b;                                                           \
		_Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = narrow(widen(a[i]) + widen(b[i]));  \
	}                                                                                                      \
	CPU_CLONES static void name##_scalar(void *to, const void *from, const void *scalar, int64_t n)        \
	{                                                                                                      \
		type *y = to;                                                                                  \
		const type *a = from;                                                                          \
		wide b = widen(*(const type *)scalar);                                                         \
		_Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = narrow(widen(a[i]) + b);            \
	}                                                                                                      \
	static void name##_fill(void *to, const void *a, const void *b, int64_t n)                             \
	{                                                                                                      \
		type *y = to, sum = narrow(widen(*(const type *)a) + widen(*(const type *)b));                 \
		for (int64_t i = 0; i < n; i++)                                                                \
			y[i] = sum;                                                                            \
	}
DEFINE_ADD(f32, float, float, as_is, as_is)
DEFINE_ADD(f64, double, double, as_is_f64, as_is_f64)
DEFINE_ADD(f16, uint16_t, float, f16_to_f32, f32_to_f16)
DEFINE_ADD(bf16, uint16_t, float, bf16_to_f32, f32_to_bf16)

typedef void add_function(void *y, const void *a, const void *b, int64_t n);

/* Of n elements at y: a and b arrays, b one element, both one element. */
struct adders {
	add_function *arrays, *scalar, *fill;
};
static const struct adders adders[] = {
    [KOPS_F32] = {f32_arrays, f32_scalar, f32_fill},
    [KOPS_F64] = {f64_arrays, f64_scalar, f64_fill},
    [KOPS_F16] = {f16_arrays, f16_scalar, f16_fill},
    [KOPS_BF16] = {bf16_arrays, bf16_scalar, bf16_fill},
};

/* Rows of a slab: element (i, j) at data[i * pitch + j * step], of `size` bytes; step is 0 or 1. */
struct plane {
	char *data;
	int64_t pitch, step, size;
};

static char *plane_row(const struct plane *p, int64_t row)
{
	return p->data + row * p->pitch * p->size;
}

static void add_row(const struct adders *add, void *y, const struct plane *a, const struct plane *b,
                    int64_t row, int64_t n)
{
	const char *from_a = plane_row(a, row), *from_b = plane_row(b, row);

	if (a->step == 1 && b->step == 1)
		add->arrays(y, from_a, from_b, n);
	else if (a->step == 1)
		add->scalar(y, from_a, from_b, n);
	else if (b->step == 1)
		add->scalar(y, from_b, from_a, n);
	else
		add->fill(y, from_a, from_b, n);
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
	struct plane p = {v->data, v->strides[2], v->strides[3], (int64_t)dtype_size(v->dtype)};

	for (unsigned d = 0; d < 4; d++)
		p.data += (int64_t)slab->at[d] * v->strides[d] * p.size;
	return p;
}

/* Room for the slab of any dtype that add takes. */
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

/* The slab of an input, by way of `room` if its columns are apart. */
static struct plane load(const struct view *v, const struct slab *slab, tile room)
{
	struct plane p = plane_of(v, slab), dense = plane_in(room, v);

	if (!jumps(v))
		return p;
	move_plane(&dense, &p, slab);
	return dense;
}

static void sum_slab(const struct view *v, const struct slab *slab)
{
	tile tile_a, tile_b, tile_y;
	struct plane a = load(&v[A], slab, tile_a), b = load(&v[B], slab, tile_b), y = plane_of(&v[Y], slab),
	             to = jumps(&v[Y]) ? plane_in(tile_y, &v[Y]) : y;

	for (int64_t i = 0; i < (int64_t)slab->rows; i++)
		add_row(&adders[v[Y].dtype], plane_row(&to, i), &a, &b, i, (int64_t)slab->cols);
	if (jumps(&v[Y]))
		move_plane(&y, &to, slab);
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

static struct sum sum_of(const struct view *v)
{
	const uint64_t *shape = v[Y].shape;
	struct sum s = {.v = v, .rows = TILE, .cols = TILE};

	if (!jumps(&v[A]) && !jumps(&v[B]) && !jumps(&v[Y])) {
		s.cols = shape[3] < RUN ? shape[3] : RUN;
		s.rows = RUN / s.cols;
	}
	s.down = ceil_div(shape[2], s.rows);
	s.across = ceil_div(shape[3], s.cols);
	s.n_slabs = shape[0] * shape[1] * s.down * s.across;
	s.n_parts = threads_parts(view_elements(&v[Y]), PART_ELEMENTS);
	return s;
}

static double time_ns(const struct op_args *args)
{
	const double slab_ns = 60, row_ns = 8, moved_ns = 2.5;
	const struct view *v = args->views;
	double elements = (double)view_elements(&v[Y]);

	if (elements == 0)
		return 0;
	struct sum s = sum_of(v);
	unsigned moved = jumps(&v[A]) + jumps(&v[B]) + jumps(&v[Y]);
	double rows = (double)v[Y].shape[0] * (double)v[Y].shape[1] * (double)v[Y].shape[2] * (double)s.across;
	double element_ns = moved * moved_ns + (v[Y].dtype == KOPS_F32   ? 0.25
	                                        : v[Y].dtype == KOPS_F64 ? 0.5
	                                                                 : 1.1);
	double ns = (double)s.n_slabs * slab_ns + rows * row_ns + elements * element_ns;
	double parts = fmin(s.n_parts, (double)s.n_slabs), memory_ns = cpu_memory_ns(args, parts);
	return moved ? ns / cpu_threads(parts) + memory_ns : fmax(ns / cpu_threads(parts), memory_ns);
}

static int launch_vectorised(const struct op_args *args, const struct launch *launch)
{
	struct sum s = sum_of(args->views);

	(void)launch;
	threads_run(s.n_parts, sum_part, &s);
	return 0;
}

static const struct kernel kernels[] = {
    {.name = "vectorised",
     .idea = "vector loops, operands without unit stride by way of 64x64 tiles, threads",
     .dtypes = "f32 f64 f16 bf16",
     .takes = "any strides",
     .supports = cpu_reference_supports,
     .time_ns = time_ns,
     .launch = launch_vectorised},
    CPU_REFERENCE_KERNEL("f32 f64 f16 bf16"),
};

const struct kernel_list add_cpu_kernels = {kernels, sizeof kernels / sizeof kernels[0]};
