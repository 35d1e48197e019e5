/* pivot.cuh: threads of a block agree on the pivot of a column. */
#ifndef KOPS_LU_PIVOT_H
#define KOPS_LU_PIVOT_H

#include <limits.h>

#include "linalg/number.cuh"

namespace
{

/* The largest element so far, of equal ones the first. NaN is none. */
template <class T> struct candidate {
	T size;
	int row;
};

template <class T> __device__ __forceinline__ candidate<T> no_candidate()
{
	return {(T)-1, INT_MAX};
}

template <class T> __device__ __forceinline__ void better(candidate<T> &best, candidate<T> x)
{
	if (x.size > best.size || (x.size == best.size && x.row < best.row))
		best = x;
}

/* |re| + |im|, as LAPACK compares complex numbers. */
template <class T> __device__ __forceinline__ T size_of(T x)
{
	return fabs(x);
}
template <class T> __device__ __forceinline__ T size_of(complex_number<T> x)
{
	return fabs(x.re) + fabs(x.im);
}

template <class T> __device__ __forceinline__ bool is_zero(T x)
{
	return x == 0;
}
template <class T> __device__ __forceinline__ bool is_zero(complex_number<T> x)
{
	return x.re == 0 && x.im == 0;
}

/* Returns the row of the best of all threads' candidates; `row` if there is none. room: of a candidate for each
 * warp. All threads call it, and have met before they use room again. */
template <int THREADS, class T> __device__ int pivot_row(candidate<T> mine, candidate<T> *room, int row)
{
	for (int lanes = 16; lanes > 0; lanes /= 2)
		better(mine, candidate<T>{__shfl_xor_sync(~0u, mine.size, lanes),
		                          __shfl_xor_sync(~0u, mine.row, lanes)});
	if (threadIdx.x % 32 == 0)
		room[threadIdx.x / 32] = mine;
	__syncthreads();
	for (int warp = 0; warp < THREADS / 32; warp++)
		better(mine, room[warp]);
	return mine.row == INT_MAX ? row : mine.row;
}

} // namespace

#endif
