/*
 * fma on the CPU. The rules have sorted and folded the axes: the last one is y's innermost.
 *
 * vectorised  blocks of the last axis; the eight vectors of a block stay in registers for all steps; threads.
 * On processors without fused multiply-add each step is rounded twice. reference   plain loops
 */
#include <math.h>

#include "common/cpu.h"
#include "common/threads.h"

enum { X, Y };

#define CHAINS       8          /* hide the latency of one multiply-add behind the others */
#define VECTOR_BYTES 64         /* AVX-512; two registers where there is AVX2 alone */
#define PART_STEPS   (1u << 19) /* multiply-adds that are worth a thread */

struct problem {
	const struct view *v;
	const struct fma_params *p;
	uint64_t block, blocks, rows; /* elements of a block; blocks of a row; rows */
	unsigned n_parts;
};

typedef float f32_vector __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
typedef double f64_vector __attribute__((vector_size(VECTOR_BYTES), aligned(8), may_alias));

/* Puts the CHAINS vectors at `at` through the steps. */
#define DEFINE_ITERATE(name, type, vector)                                                                     \
	CPU_CLONES static void name(type *at, type alpha, type beta, uint32_t steps)                           \
	{                                                                                                      \
		vector *v = (vector *)at, a = alpha - (vector){0}, b = beta - (vector){0};                     \
		vector v0 = v[0], v1 = v[1], v2 = v[2], v3 = v[3];                                             \
		vector v4 = v[4], v5 = v[5], v6 = v[6], v7 = v[7];                                             \
                                                                                                               \
		for (uint32_t s = 0; s < steps; s++) {                                                         \
			v0 = v0 * a + b, v1 = v1 * a + b, v2 = v2 * a + b, v3 = v3 * a + b;                    \
			v4 = v4 * a + b, v5 = v5 * a + b, v6 = v6 * a + b, v7 = v7 * a + b;                    \
		}                                                                                              \
		v[0] = v0, v[1] = v1, v[2] = v2, v[3] = v3;                                                    \
		v[4] = v4, v[5] = v5, v[6] = v6, v[7] = v7;                                                    \
	}
DEFINE_ITERATE(iterate_f32, float, f32_vector)
DEFINE_ITERATE(iterate_f64, double, f64_vector)

/* n elements of one row, n at most a block, by way of a block: what is beyond n is computed and dropped. */
#define DEFINE_RUN(name, type, iterate)                                                                        \
	static void name(const struct fma_params *p, const type *x, int64_t x_step, type *y, int64_t y_step,   \
	                 int64_t n)                                                                            \
	{                                                                                                      \
		type block[CHAINS * VECTOR_BYTES / sizeof(type)] = {0};                                        \
                                                                                                               \
		for (int64_t i = 0; i < n; i++)                                                                \
			block[i] = x[i * x_step];                                                              \
		iterate(block, (type)p->alpha, (type)p->beta, p->steps);                                       \
		for (int64_t i = 0; i < n; i++)                                                                \
			y[i * y_step] = block[i];                                                              \
	}
DEFINE_RUN(run_f32, float, iterate_f32)
DEFINE_RUN(run_f64, double, iterate_f64)

static int64_t element_at(const struct view *v, uint64_t row, uint64_t col)
{
	uint64_t rest = row / v->shape[2];

	return (int64_t)(rest / v->shape[1]) * v->strides[0] + (int64_t)(rest % v->shape[1]) * v->strides[1] +
	       (int64_t)(row % v->shape[2]) * v->strides[2] + (int64_t)col * v->strides[3];
}

static void run_part(void *ctx, unsigned part)
{
	const struct problem *s = ctx;
	const struct view *x = &s->v[X], *y = &s->v[Y];
	uint64_t to = threads_bound(s->rows * s->blocks, part + 1, s->n_parts);

	for (uint64_t i = threads_bound(s->rows * s->blocks, part, s->n_parts); i < to; i++) {
		uint64_t col = i % s->blocks * s->block, left = y->shape[3] - col;
		int64_t at_x = element_at(x, i / s->blocks, col), at_y = element_at(y, i / s->blocks, col);
		int64_t n = (int64_t)(left < s->block ? left : s->block);

		if (y->dtype == KOPS_F32)
			run_f32(s->p, (const float *)x->data + at_x, x->strides[3], (float *)y->data + at_y,
			        y->strides[3], n);
		else
			run_f64(s->p, (const double *)x->data + at_x, x->strides[3], (double *)y->data + at_y,
			        y->strides[3], n);
	}
}

static int launch_vectorised(const struct op_args *args, const struct launch *launch)
{
	const struct view *y = &args->views[Y];
	struct problem s = {.v = args->views, .p = &args->params.fma};
	double steps = (double)view_elements(y) * (args->params.fma.steps + 1.0);

	(void)launch;
	s.block = CHAINS * VECTOR_BYTES / dtype_size(y->dtype);
	s.blocks = (y->shape[3] + s.block - 1) / s.block;
	s.rows = y->shape[0] * y->shape[1] * y->shape[2];
	s.n_parts = threads_parts(steps < 0x1p62 ? (uint64_t)steps : (uint64_t)1 << 62, PART_STEPS);
	threads_run(s.n_parts, run_part, &s);
	return 0;
}

/* Of a step of a block: where the threads share a core's units, up to 3.3. */
static double step_ns(void)
{
#if defined(__x86_64__)
	return __builtin_cpu_supports("avx512f") ? 2.6 : __builtin_cpu_supports("avx2") ? 5 : 20;
#else
	return 10;
#endif
}

/* A block takes as long with one element as with all. */
static double time_ns(const struct op_args *args)
{
	const double element_ns = 1.5; /* into the block and out of it */
	const struct view *y = &args->views[Y];
	double lanes = CHAINS * VECTOR_BYTES / (double)dtype_size(y->dtype);
	double rows = (double)y->shape[0] * (double)y->shape[1] * (double)y->shape[2];
	double blocks = rows * ceil((double)y->shape[3] / lanes), threads = cpu_threads(blocks);
	double steps = ceil(blocks / threads) * args->params.fma.steps * step_ns();

	return steps + (double)view_elements(y) * element_ns / threads + cpu_memory_ns(args, blocks);
}

static const struct kernel kernels[] = {
    {.name = "vectorised",
     .idea = "eight vectors at a time stay in registers for all steps, threads",
     .dtypes = "f32 f64",
     .takes = "any strides",
     .supports = cpu_reference_supports,
     .time_ns = time_ns,
     .launch = launch_vectorised},
    CPU_REFERENCE_KERNEL("f32 f64"),
};

const struct kernel_list fma_cpu_kernels = {kernels, sizeof kernels / sizeof kernels[0]};
