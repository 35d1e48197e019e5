/*
 * unary on the CPU.
 *
 * vectorised  Pieces of a row are scaled, and widened to f32 if they have 16 bits; then the function, the
 * limits and the rounding go over the piece, which stays in the first-level cache. elementwise/cpu.c brings
 * rows of any strides and the threads. reference   plain loops, float64
 */
#include <math.h>

#include "common/cpu.h"
#include "common/half.h"
#include "common/rules.h"
#include "elementwise/elementwise.h"
#include "elementwise/unary_function_cpu.h"

enum { X, Y };

#define PIECE 2048

/* y may be x. Equal addresses are still safe to vectorise. */
CPU_CLONES static void scale_f32(float *y, const float *x, int64_t n, float by)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		y[i] = by * x[i];
}

CPU_CLONES static void scale_f64(double *y, const double *x, int64_t n, double by)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		y[i] = by * x[i];
}

CPU_CLONES static void limit_f32(float *y, int64_t n, float low, float high)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		float least = y[i] < low ? low : y[i];
		y[i] = least > high ? high : least;
	}
}

CPU_CLONES static void limit_f64(double *y, int64_t n, double low, double high)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		double least = y[i] < low ? low : y[i];
		y[i] = least > high ? high : least;
	}
}

static bool has_limits(const struct unary_params *p)
{
	return p->low > -(double)INFINITY || p->high < (double)INFINITY;
}

static void compute_f32(const struct unary_params *p, float *y, const float *x, int64_t n)
{
	scale_f32(y, x, n, (float)p->scale);
	unary_apply_f32(p->function, y, n);
	if (has_limits(p))
		limit_f32(y, n, (float)p->low, (float)p->high);
}

static void compute_f64(const struct unary_params *p, double *y, const double *x, int64_t n)
{
	scale_f64(y, x, n, p->scale);
	unary_apply_f64(p->function, y, n);
	if (has_limits(p))
		limit_f64(y, n, p->low, p->high);
}

static void compute_half(const struct unary_params *p, void *y, const void *x, kops_dtype dtype, int64_t n)
{
	float room[PIECE];

	half_widen(room, x, dtype, n);
	compute_f32(p, room, room, n);
	half_narrow(y, dtype, room, n);
}

/* At most PIECE elements. */
static void compute_piece(const struct op_args *args, void *y, const void *x, int64_t n)
{
	const struct unary_params *p = &args->params.unary;
	kops_dtype dtype = args->views[Y].dtype;

	if (dtype == KOPS_F32)
		compute_f32(p, y, x, n);
	else if (dtype == KOPS_F64)
		compute_f64(p, y, x, n);
	else
		compute_half(p, y, x, dtype, n);
}

/* One element goes to all n places. */
static void fill(const struct op_args *args, char *y, const void *x, int64_t n)
{
	size_t size = dtype_size(args->views[Y].dtype);

	compute_piece(args, y, x, 1);
	for (int64_t i = 1; i < n; i++)
		memcpy(y + (size_t)i * size, y, size);
}

static void compute_row(const void *ctx, void *y, const void *const x[ELEMENTWISE_INPUTS_MAX],
                        const bool repeats[ELEMENTWISE_INPUTS_MAX], int64_t n)
{
	const struct op_args *args = ctx;
	int64_t size = (int64_t)dtype_size(args->views[Y].dtype);

	if (repeats[X]) {
		fill(args, y, x[X], n);
		return;
	}
	for (int64_t i = 0; i < n; i += PIECE)
		compute_piece(args, (char *)y + i * size, (const char *)x[X] + i * size,
		              n - i < PIECE ? n - i : PIECE);
}

/* Sorts and joins the axes, for elementwise_run(). */
static void sort_axes(const struct op_args *args, struct view ret[2])
{
	ret[X] = args->views[X];
	ret[Y] = args->views[Y];
	struct view *const both[] = {&ret[X], &ret[Y]};
	rules_order(both, 2);
	rules_fold(both, 2, 4);
}

static double time_ns(const struct op_args *args)
{
	kops_dtype dtype = args->views[Y].dtype;
	double rounding_ns = dtype == KOPS_F32 || dtype == KOPS_F64 ? 0.2 : 1.2;
	struct view views[2];

	sort_axes(args, views);
	return elementwise_cpu_ns(args, views, 1,
	                          rounding_ns + unary_element_ns(args->params.unary.function, dtype));
}

static int launch_vectorised(const struct op_args *args, const struct launch *launch)
{
	struct view views[2];

	(void)launch;
	sort_axes(args, views);
	elementwise_run(views, 1, compute_row, args);
	return 0;
}

static const struct kernel kernels[] = {
    {.name = "vectorised",
     .idea =
         "vector loops over pieces in the cache, operands without unit stride by way of 64x64 tiles, threads",
     .dtypes = "f32 f64 f16 bf16",
     .takes = "any strides",
     .supports = cpu_reference_supports,
     .time_ns = time_ns,
     .launch = launch_vectorised},
    CPU_REFERENCE_KERNEL("f32 f64 f16 bf16"),
};

const struct kernel_list unary_cpu_kernels = {kernels, sizeof kernels / sizeof kernels[0]};
