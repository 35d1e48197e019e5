/*
 * reduce on the CPU.
 *
 * vectorised  Vector loops over pieces of a row: 256 elements are added in f32 before float64 takes over. f64
 *             is added in float64, and products are made in it. f16 and bf16 are widened to f32 piece by piece,
 *             in a buffer that stays in the first-level cache. cpu_rows.c goes through the rows.
 * reference   plain loops, float64
 */
#include <math.h>

#include "common/cpu.h"
#include "common/half.h"
#include "reduce/cpu_rows.h"
#include "reduce/join.h"

enum { X, Y };

#define SUM_BLOCK 256  /* terms added in f32, perhaps one by one, before float64 takes over */
#define PIECE     4096 /* elements of a row that are widened or moved at a time */

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

CPU_CLONES static float sum_block(const float *x, int64_t n)
{
	float sum = 0;

	_Pragma("omp simd reduction(+ : sum)") for (int64_t i = 0; i < n; i++) sum += x[i];
	return sum;
}

/* Sums in float64, which holds what exceeds f32's range. */
static double sum_wide(const float *x, int64_t n)
{
	double sum = 0;

	for (int64_t i = 0; i < n; i++)
		sum += (double)x[i];
	return sum;
}

/* Defines a function that returns the largest or the smallest, or NaN if there is one. integer: of type's size.
 */
#define EXTREME(name, type, integer, of, nothing, better)                                                      \
	CPU_CLONES static type name(const type *x, int64_t n)                                                  \
	{                                                                                                      \
		type found = nothing;                                                                          \
		integer nans = 0;                                                                              \
		CPU_EXTREMES(reduction(of : found) reduction(| : nans))                                        \
		for (int64_t i = 0; i < n; i++) {                                                              \
			found = x[i] better found ? x[i] : found;                                              \
			nans |= x[i] != x[i];                                                                  \
		}                                                                                              \
		return nans ? (type)NAN : found;                                                               \
	}

EXTREME(max_f32, float, int32_t, max, -INFINITY, >)
EXTREME(min_f32, float, int32_t, min, INFINITY, <)
EXTREME(max_f64, double, int64_t, max, -(double)INFINITY, >)
EXTREME(min_f64, double, int64_t, min, (double)INFINITY, <)

CPU_CLONES static double sum_f64(const double *x, int64_t n)
{
	double sum = 0;

	_Pragma("omp simd reduction(+ : sum)") for (int64_t i = 0; i < n; i++) sum += x[i];
	return sum;
}

/* Products leave f32's range soon. */
CPU_CLONES static double multiply_f32(const float *x, int64_t n)
{
	double product = 1;

	_Pragma("omp simd reduction(* : product)") for (int64_t i = 0; i < n; i++) product *= (double)x[i];
	return product;
}

CPU_CLONES static double multiply_f64(const double *x, int64_t n)
{
	double product = 1;

	_Pragma("omp simd reduction(* : product)") for (int64_t i = 0; i < n; i++) product *= x[i];
	return product;
}

/* Sums rows that are too short for vectors to matter, `pitch` elements apart. */
CPU_CLONES static void sum_short(struct reduce_found *found, const float *x, int64_t pitch, int64_t rows,
                                 int64_t n)
{
	for (int64_t r = 0; r < rows; r++, x += pitch) {
		float sum = 0;

		for (int64_t i = 0; i < n; i++)
			sum += x[i];
		found[r].value = isfinite(sum) ? (double)sum : sum_wide(x, n);
	}
}

static double sum_floats(const float *x, int64_t n)
{
	double result = 0;

	for (int64_t i = 0; i < n; i += SUM_BLOCK) {
		int64_t width = least(n - i, SUM_BLOCK);
		float sum = sum_block(x + i, width);

		result += isfinite(sum) ? (double)sum : sum_wide(x + i, width);
	}
	return result;
}

static double reduce_floats(kops_reduction kind, const float *x, int64_t n)
{
	switch (kind) {
	case KOPS_MAX:
		return (double)max_f32(x, n);
	case KOPS_MIN:
		return (double)min_f32(x, n);
	case KOPS_PROD:
		return multiply_f32(x, n);
	case KOPS_SUM:
	case KOPS_MEAN:
		break;
	}
	return sum_floats(x, n);
}

static double reduce_piece(kops_reduction kind, const double *x, int64_t n)
{
	switch (kind) {
	case KOPS_MAX:
		return max_f64(x, n);
	case KOPS_MIN:
		return min_f64(x, n);
	case KOPS_PROD:
		return multiply_f64(x, n);
	case KOPS_SUM:
	case KOPS_MEAN:
		break;
	}
	return sum_f64(x, n);
}

/* Joins pieces, so that roundings add up over pieces and not over all elements. */
static double reduce_doubles(kops_reduction kind, const double *x, int64_t n)
{
	double result = reduce_nothing(kind);

	for (int64_t i = 0; i < n; i += PIECE)
		result = reduce_join(kind, result, reduce_piece(kind, x + i, least(n - i, PIECE)));
	return result;
}

double reduce_run(kops_reduction kind, const void *x, kops_dtype dtype, int64_t n)
{
	double result = reduce_nothing(kind);
	float room[PIECE];

	if (dtype == KOPS_F32)
		return reduce_floats(kind, x, n);
	if (dtype == KOPS_F64)
		return reduce_doubles(kind, x, n);
	for (int64_t i = 0; i < n; i += PIECE) {
		int64_t width = least(n - i, PIECE);

		half_widen(room, (const uint16_t *)x + i, dtype, width);
		result = reduce_join(kind, result, reduce_floats(kind, room, width));
	}
	return result;
}

/* ---- Rows ---- */

static void join_run(const struct op_args *args, const void *x, int64_t column, int64_t n,
                     struct reduce_found *found)
{
	kops_reduction kind = args->params.reduce.kind;

	(void)column;
	found->value = reduce_join(kind, found->value, reduce_run(kind, x, args->views[X].dtype, n));
}

static void join(const struct op_args *args, struct reduce_found *found, const struct reduce_found *behind)
{
	found->value = reduce_join(args->params.reduce.kind, found->value, behind->value);
}

static void store(const struct op_args *args, uint64_t row, const struct reduce_found *found)
{
	const struct reduce_params *p = &args->params.reduce;
	const struct view *y = &args->views[Y];
	int64_t at = view_row(y, row);
	double result = found->value * p->scale;

	if (p->goes_on)
		result = reduce_join(p->kind, half_load(y->data, y->dtype, at), result);
	half_store(y->data, y->dtype, at, result);
}

static double time_ns(const struct op_args *args)
{
	kops_dtype dtype = args->views[X].dtype;
	double element_ns = dtype == KOPS_F32 ? 0.12 : dtype == KOPS_F16 ? 0.6 : 0.25 /* f64: as bf16 */;

	return reduce_rows_ns(args, element_ns + (args->params.reduce.kind == KOPS_PROD ? 0.2 : 0));
}

static int vectorised(const struct op_args *args, const struct launch *launch)
{
	kops_reduction kind = args->params.reduce.kind;
	bool is_sum = kind == KOPS_SUM || kind == KOPS_MEAN;
	const struct reduce_steps steps = {
	    {reduce_nothing(kind), 0}, join_run, join, store, is_sum ? sum_short : NULL};

	reduce_rows_run(args, &steps, launch);
	return 0;
}

static const struct kernel kernels[] = {
    {.name = "vectorised",
     .idea = "vector loops, sums in f32 and float64, strided rows through a tile, threads",
     .dtypes = "f32 f64 f16 bf16",
     .takes = "any strides",
     .supports = cpu_reference_supports,
     .workspace = reduce_rows_workspace,
     .time_ns = time_ns,
     .carries = true,
     .launch = vectorised},
    CPU_REFERENCE_KERNEL("f32 f64 f16 bf16"),
};

const struct kernel_list reduce_cpu_kernels = {kernels, sizeof kernels / sizeof kernels[0]};
