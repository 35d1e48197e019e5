/*
 * problem.cuh: what a kernel of reduce is given, how parts of a row are joined, and where results go.
 *
 * f64 is added in f64. Of other types a thread adds some 100 elements at most in f32, then in f64: millions of
 * equal terms would all round the same way. Where such a sum is not finite, its elements are added again in
 * f64, which has room for all: the mean of the largest numbers is a number. Parts of a sum are joined in a
 * fixed order, so that results repeat bit for bit.
 */
#ifndef KOPS_KERNELS_REDUCE_PROBLEM_H
#define KOPS_KERNELS_REDUCE_PROBLEM_H

#include <math.h>
#include <string.h>

#include "common/hopper/compare.cuh"
#include "reduce/rows.cuh"

namespace
{

struct problem : reduced_rows {
	double scale;
	bool goes_on, wide; /* wide: y is f32, whatever x is */
	bool plain;         /* neither holds, and results along the last axis are side by side */
	double *partials;   /* of each piece and row, where there are more than one */
};

/* ---- What is added up ---- */

/* LARGEST, SMALLEST: or NaN if there is one. */
enum total_kind { SUM, LARGEST, SMALLEST, PRODUCT };

/* An element: f64 or f32. */
template <typename T> using sum_type = real<T>;

/* In which few elements are joined: products leave f32's range soon. */
template <total_kind KIND, typename T> struct joined {
	typedef sum_type<T> type;
};
template <typename T> struct joined<PRODUCT, T> {
	typedef double type;
};
template <total_kind KIND, typename T> using part_type = typename joined<KIND, T>::type;

template <total_kind KIND> struct total {
	static __device__ __forceinline__ float nothing()
	{
		return KIND == LARGEST    ? -INFINITY
		       : KIND == SMALLEST ? INFINITY
		       : KIND == PRODUCT  ? 1.0f
		                          : 0.0f;
	}
	template <typename F> static __device__ __forceinline__ F join(F a, F b)
	{
		if constexpr (KIND == LARGEST)
			return hopper::larger(a, b);
		else if constexpr (KIND == SMALLEST)
			return hopper::smaller(a, b);
		else if constexpr (KIND == PRODUCT)
			return a * b;
		else
			return a + b;
	}
};

/* 16 bytes of elements. */
template <total_kind KIND, typename T>
__device__ __forceinline__ part_type<KIND, T> join_vector(part_type<KIND, T> sum, uint4 v)
{
	constexpr int N = sizeof(uint4) / sizeof(T);
	T t[N];
	part_type<KIND, T> part[N];

	memcpy(t, &v, sizeof v);
#pragma unroll
	for (int i = 0; i < N; i++)
		part[i] = (part_type<KIND, T>)(sum_type<T>)t[i];
#pragma unroll
	for (int step = N / 2; step > 0; step /= 2)
#pragma unroll
		for (int i = 0; i < step; i++)
			part[i] = total<KIND>::join(part[i], part[i + step]);
	return total<KIND>::join(sum, part[0]);
}

/* Whether an f32 sum of elements can leave its range: 100 of f16 cannot. For f64 there is nothing wider. */
template <total_kind KIND, typename T> constexpr bool MAY_OVERFLOW = KIND == SUM;
template <> constexpr bool MAY_OVERFLOW<SUM, __half> = false;
template <> constexpr bool MAY_OVERFLOW<SUM, double> = false;

__device__ __forceinline__ bool is_finite(float x)
{
	return fabsf(x) <= 0x1.fffffep127f;
}

__device__ __forceinline__ bool is_finite(double x)
{
	return fabs(x) <= 0x1.fffffffffffffp1023;
}

/* join_vector() in f64. */
template <typename T> __device__ __forceinline__ double add_wide(double sum, uint4 v)
{
	constexpr int N = sizeof(uint4) / sizeof(T);
	T t[N];

	memcpy(t, &v, sizeof v);
#pragma unroll
	for (int i = 0; i < N; i++)
		sum += (double)(sum_type<T>)t[i];
	return sum;
}

template <total_kind KIND, unsigned GROUP, typename F> __device__ __forceinline__ F join_lanes(F result)
{
#pragma unroll
	for (unsigned step = GROUP / 2; step > 0; step /= 2)
		result = total<KIND>::join(result, __shfl_xor_sync(0xffffffff, result, step));
	return result;
}

/* Whether a sum that GROUP lanes have is to be made again in f64, by the whole warp if lanes help each other.
 */
template <total_kind KIND, typename T, unsigned GROUP>
__device__ __forceinline__ bool overflows(part_type<KIND, T> sum)
{
	if constexpr (!MAY_OVERFLOW<KIND, T>)
		return false;
	else if constexpr (GROUP == 1)
		return !is_finite(sum);
	else
		return !__all_sync(0xffffffff, is_finite(sum));
}

/* Of the whole block; valid in its first warp. */
template <total_kind KIND> __device__ __forceinline__ double join_block(double result)
{
	__shared__ double of_warps[WARPS];
	unsigned lane = threadIdx.x % WARP;

	result = join_lanes<KIND, WARP>(result);
	__syncthreads(); /* the piece before is through with of_warps */
	if (lane == 0)
		of_warps[threadIdx.x / WARP] = result;
	__syncthreads();
	return join_lanes<KIND, WARP>(lane < WARPS ? of_warps[lane] : (double)total<KIND>::nothing());
}

/* ---- Where results go ---- */

template <total_kind KIND, typename T>
__device__ __forceinline__ void store_as(const problem &p, int64_t at, double result)
{
	T *y = (T *)p.y + at;

	/* Where neither holds, the compiler spares the conversions to f64 and back: rows of a few elements wait
	 * for them. */
	if (p.scale != 1 || p.goes_on) {
		result *= p.scale;
		if (p.goes_on)
			result = total<KIND>::join((double)(sum_type<T>)*y, result);
	}
	*y = (T)(sum_type<T>)result;
}

template <total_kind KIND, typename T>
__device__ __forceinline__ void store_at(const problem &p, int64_t at, double result)
{
	if (p.wide)
		store_as<KIND, float>(p, at, result);
	else
		store_as<KIND, T>(p, at, result);
}

template <total_kind KIND, typename T>
__device__ __forceinline__ void store_row(const problem &p, uint64_t row, double result)
{
	store_at<KIND, T>(p, at_row(p, p.y_batch, row), result);
}

template <total_kind KIND, typename T>
__device__ __forceinline__ void store_piece(const problem &p, uint64_t row, uint64_t part, double result)
{
	if (p.splits == 1)
		store_row<KIND, T>(p, row, result);
	else
		p.partials[part * p.rows + row] = result;
}

/* N elements that are loaded together. */
template <typename T, unsigned N> struct alignas(N * sizeof(T)) some {
	T of[N];
};

} // namespace

#endif
