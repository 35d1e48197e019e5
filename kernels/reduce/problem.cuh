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

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>
#include <string.h>

#include "common/hopper/compare.cuh"
#include "common/launch.cuh"
#include "common/rows.cuh"
#include "reduce/split.h"

namespace
{

constexpr unsigned THREADS = REDUCE_THREADS;
constexpr unsigned WARP = 32;
constexpr unsigned WARPS = THREADS / WARP;
constexpr uint64_t GRID_MAX = 1u << 20;

struct problem {
	const void *x;
	void *y;
	uint64_t rows, cols, batch[3];
	int64_t x_batch[3], y_batch[3], x_col;
	double scale;
	bool goes_on, wide; /* wide: y is f32, whatever x is */
	bool plain;         /* neither holds, and results along the last axis are side by side */
	uint64_t chunk;
	uint32_t splits;
	double *partials; /* of each piece and row, where there are more than one */
};

/* ---- What is added up ---- */

/* In which few elements are added: f64 of f64. */
template <typename T> struct summed {
	typedef float type;
};
template <> struct summed<double> {
	typedef double type;
};
template <typename T> using sum_type = typename summed<T>::type;

/* MAX: the largest, or NaN if there is one. */
template <bool MAX> struct total {
	static __device__ __forceinline__ float nothing()
	{
		return MAX ? -INFINITY : 0.0f;
	}
	template <typename F> static __device__ __forceinline__ F join(F a, F b)
	{
		if constexpr (MAX)
			return hopper::larger(a, b);
		else
			return a + b;
	}
};

/* 16 bytes of elements. */
template <bool MAX, typename T> __device__ __forceinline__ sum_type<T> join_vector(sum_type<T> sum, uint4 v)
{
	constexpr int N = sizeof(uint4) / sizeof(T);
	T t[N];
	sum_type<T> part[N];

	memcpy(t, &v, sizeof v);
#pragma unroll
	for (int i = 0; i < N; i++)
		part[i] = (sum_type<T>)t[i];
#pragma unroll
	for (int step = N / 2; step > 0; step /= 2)
#pragma unroll
		for (int i = 0; i < step; i++)
			part[i] = total<MAX>::join(part[i], part[i + step]);
	return total<MAX>::join(sum, part[0]);
}

/* Whether an f32 sum of elements can leave its range: 100 of f16 cannot. For f64 there is nothing wider. */
template <bool MAX, typename T> constexpr bool MAY_OVERFLOW = !MAX;
template <> constexpr bool MAY_OVERFLOW<false, __half> = false;
template <> constexpr bool MAY_OVERFLOW<false, double> = false;

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

template <bool MAX, unsigned GROUP, typename F> __device__ __forceinline__ F join_lanes(F result)
{
#pragma unroll
	for (unsigned step = GROUP / 2; step > 0; step /= 2)
		result = total<MAX>::join(result, __shfl_xor_sync(0xffffffff, result, step));
	return result;
}

/* Whether a sum that GROUP lanes have is to be made again in f64, by the whole warp if lanes help each other.
 */
template <bool MAX, typename T, unsigned GROUP> __device__ __forceinline__ bool overflows(sum_type<T> sum)
{
	if constexpr (!MAY_OVERFLOW<MAX, T>)
		return false;
	else if constexpr (GROUP == 1)
		return !is_finite(sum);
	else
		return !__all_sync(0xffffffff, is_finite(sum));
}

/* Of the whole block; valid in its first warp. */
template <bool MAX> __device__ __forceinline__ double join_block(double result)
{
	__shared__ double of_warps[WARPS];
	unsigned lane = threadIdx.x % WARP;

	result = join_lanes<MAX, WARP>(result);
	__syncthreads(); /* the piece before is through with of_warps */
	if (lane == 0)
		of_warps[threadIdx.x / WARP] = result;
	__syncthreads();
	return join_lanes<MAX, WARP>(lane < WARPS ? of_warps[lane] : (double)total<MAX>::nothing());
}

/* ---- Where results go ---- */

template <bool MAX, typename T>
__device__ __forceinline__ void store_as(const problem &p, int64_t at, double result)
{
	T *y = (T *)p.y + at;

	/* Where neither holds, the compiler spares the conversions to f64 and back: rows of a few elements wait
	 * for them. */
	if (p.scale != 1 || p.goes_on) {
		result *= p.scale;
		if (p.goes_on)
			result = total<MAX>::join((double)(sum_type<T>)*y, result);
	}
	*y = (T)(sum_type<T>)result;
}

template <bool MAX, typename T>
__device__ __forceinline__ void store_at(const problem &p, int64_t at, double result)
{
	if (p.wide)
		store_as<MAX, float>(p, at, result);
	else
		store_as<MAX, T>(p, at, result);
}

template <bool MAX, typename T>
__device__ __forceinline__ void store_row(const problem &p, uint64_t row, double result)
{
	store_at<MAX, T>(p, at_row(p, p.y_batch, row), result);
}

template <bool MAX, typename T>
__device__ __forceinline__ void store_piece(const problem &p, uint64_t row, uint64_t part, double result)
{
	if (p.splits == 1)
		store_row<MAX, T>(p, row, result);
	else
		p.partials[part * p.rows + row] = result;
}

/* N elements that are loaded together. */
template <typename T, unsigned N> struct alignas(N * sizeof(T)) some {
	T of[N];
};

/* ---- Launching ---- */

unsigned grid_of(uint64_t work, uint64_t per_block)
{
	uint64_t blocks = (work + per_block - 1) / per_block;

	return (unsigned)(blocks < 1 ? 1 : blocks < GRID_MAX ? blocks : GRID_MAX);
}

} // namespace

#endif
