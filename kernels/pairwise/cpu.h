/* cpu.h: the table of CPU kernels of a pairwise op that has an operator in C. */
#ifndef KOPS_PAIRWISE_CPU_H
#define KOPS_PAIRWISE_CPU_H

#include "common/cpu.h"
#include "common/half.h"
#include "elementwise/elementwise.h"
#include "pairwise/pairwise.h"

typedef void pairwise_function(void *y, const void *a, const void *b, int64_t n);

/* Loops that write n elements at y: a and b are arrays, b is one element, a is, or both are. */
struct pairwise_loops {
	pairwise_function *arrays, *scalar, *scalar_first, *fill;
};

static void pairwise_row(const void *ctx, void *y, const void *const x[ELEMENTWISE_INPUTS_MAX],
                         const bool repeats[ELEMENTWISE_INPUTS_MAX], int64_t n)
{
	const struct pairwise_loops *loops = ctx;

	(repeats[0]   ? repeats[1] ? loops->fill : loops->scalar_first
	 : repeats[1] ? loops->scalar
	              : loops->arrays)(y, x[0], x[1], n);
}

static double pairwise_ns(const struct op_args *args)
{
	kops_dtype dtype = args->views[0].dtype;

	return elementwise_cpu_ns(args, args->views, 2,
	                          dtype == KOPS_F32   ? 0.25
	                          : dtype == KOPS_F64 ? 0.5
	                                              : 1.1);
}

static inline float pairwise_f32(float x)
{
	return x;
}

static inline double pairwise_f64(double x)
{
	return x;
}

/* No restrict, since y may be a or b. Equal addresses are still safe to vectorise. */
#define PAIRWISE_LOOPS(name, type, wide, widen, narrow, operator)                                              \
	CPU_CLONES static void name##_arrays(void *to, const void *from_a, const void *from_b, int64_t n)      \
	{                                                                                                      \
		type *y = to;                                                                                  \
		const type *a = from_a, *b = from_b;                                                           \
		_Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] =                                     \
		    narrow(widen(a[i]) operator widen(b[i]));                                                  \
	}                                                                                                      \
	CPU_CLONES static void name##_scalar(void *to, const void *from, const void *scalar, int64_t n)        \
	{                                                                                                      \
		type *y = to;                                                                                  \
		const type *a = from;                                                                          \
		wide b = widen(*(const type *)scalar);                                                         \
		_Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = narrow(widen(a[i]) operator b);     \
	}                                                                                                      \
	CPU_CLONES static void name##_scalar_first(void *to, const void *scalar, const void *from, int64_t n)  \
	{                                                                                                      \
		type *y = to;                                                                                  \
		const type *b = from;                                                                          \
		wide a = widen(*(const type *)scalar);                                                         \
		_Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = narrow(a operator widen(b[i]));     \
	}                                                                                                      \
	static void name##_fill(void *to, const void *a, const void *b, int64_t n)                             \
	{                                                                                                      \
		type *y = to, one = narrow(widen(*(const type *)a) operator widen(*(const type *)b));          \
		for (int64_t i = 0; i < n; i++)                                                                \
			y[i] = one;                                                                            \
	}

/* Defines NAME_cpu_kernels. vectorised: loops along the last axis, which widen and round the 16-bit types. */
#define PAIRWISE_CPU_KERNELS(NAME, operator)                                                                   \
	PAIRWISE_LOOPS(f32, float, float, pairwise_f32, pairwise_f32, operator)                                \
	PAIRWISE_LOOPS(f64, double, double, pairwise_f64, pairwise_f64, operator)                              \
	PAIRWISE_LOOPS(f16, uint16_t, float, f16_to_f32, f32_to_f16, operator)                                 \
	PAIRWISE_LOOPS(bf16, uint16_t, float, bf16_to_f32, f32_to_bf16, operator)                              \
	static int launch_vectorised(const struct op_args *args, const struct launch *launch)                  \
	{                                                                                                      \
		static const struct pairwise_loops loops[] = {                                                 \
		    [KOPS_F32] = {f32_arrays, f32_scalar, f32_scalar_first, f32_fill},                         \
		    [KOPS_F64] = {f64_arrays, f64_scalar, f64_scalar_first, f64_fill},                         \
		    [KOPS_F16] = {f16_arrays, f16_scalar, f16_scalar_first, f16_fill},                         \
		    [KOPS_BF16] = {bf16_arrays, bf16_scalar, bf16_scalar_first, bf16_fill},                    \
		};                                                                                             \
		(void)launch;                                                                                  \
		elementwise_run(args->views, 2, pairwise_row, &loops[args->views[0].dtype]);                   \
		return 0;                                                                                      \
	}                                                                                                      \
	static const struct kernel kernels[] = {                                                               \
	    {.name = "vectorised",                                                                             \
	     .idea = "vector loops, operands without unit stride by way of 64x64 tiles, threads",              \
	     .dtypes = "f32 f64 f16 bf16",                                                                     \
	     .takes = "any strides",                                                                           \
	     .supports = cpu_reference_supports,                                                               \
	     .time_ns = pairwise_ns,                                                                           \
	     .launch = launch_vectorised},                                                                     \
	    CPU_REFERENCE_KERNEL("f32 f64 f16 bf16"),                                                          \
	};                                                                                                     \
	const struct kernel_list NAME##_cpu_kernels = {kernels, sizeof kernels / sizeof kernels[0]}

#endif
