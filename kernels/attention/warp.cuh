/* warp.cuh: the sum, and the largest, of what the lanes of a warp have; all of them get it. */
#ifndef KOPS_KERNELS_ATTENTION_WARP_H
#define KOPS_KERNELS_ATTENTION_WARP_H

namespace
{

template <class R> __device__ __forceinline__ R sum_of_warp(R x)
{
#pragma unroll
	for (int apart = 16; apart > 0; apart /= 2)
		x += __shfl_xor_sync(~0u, x, apart);
	return x;
}

template <class R> __device__ __forceinline__ R largest_of_warp(R x)
{
#pragma unroll
	for (int apart = 16; apart > 0; apart /= 2) {
		R other = __shfl_xor_sync(~0u, x, apart);
		x = other > x ? other : x;
	}
	return x;
}

} // namespace

#endif
