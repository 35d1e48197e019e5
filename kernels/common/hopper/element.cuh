/* element.cuh: types as tensor cores take them: their names, pairs of 16 bits, and blocks in shared memory. */
#ifndef KOPS_KERNELS_HOPPER_ELEMENT_H
#define KOPS_KERNELS_HOPPER_ELEMENT_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "common/hopper/mma.cuh"

namespace
{

template <class T> struct element_of {
	static constexpr hopper::element E = hopper::element::F16;
};
template <> struct element_of<__nv_bfloat16> {
	static constexpr hopper::element E = hopper::element::BF16;
};
template <> struct element_of<float> {
	static constexpr hopper::element E = hopper::element::TF32;
};

/* Two neighbours, and the pair of two numbers, each rounded once. */
__device__ __forceinline__ float2 load_pair(const float *c)
{
	return *(const float2 *)c;
}

__device__ __forceinline__ float2 load_pair(const __half *c)
{
	return __half22float2(*(const __half2 *)c);
}

__device__ __forceinline__ float2 load_pair(const __nv_bfloat16 *c)
{
	return __bfloat1622float2(*(const __nv_bfloat162 *)c);
}

__device__ __forceinline__ uint32_t pack_pair(const __half *, float x, float y)
{
	__half2 pair = __floats2half2_rn(x, y);

	return *(const uint32_t *)&pair;
}

__device__ __forceinline__ uint32_t pack_pair(const __nv_bfloat16 *, float x, float y)
{
	__nv_bfloat162 pair = __floats2bfloat162_rn(x, y);

	return *(const uint32_t *)&pair;
}

#if __CUDA_ARCH__ >= 900

/*
 * Of a tile of A or B in shared memory: 16 rows of A or columns of B from `outer` on, and 16 of K, as
 * hopper::add_products() takes them: all four of A, and for the columns of half h of B pairs h and h + 2. The
 * tile's lines, PITCH bytes apart, run along K or across it.
 */
template <bool ALONG_K, int PITCH>
__device__ __forceinline__ void load_block(uint32_t (&pairs)[4], uint32_t tile, int outer, int k)
{
	int lane = threadIdx.x % 32;

	outer += lane / 8 % 2 * 8;
	k += lane / 16 * 8;
	hopper::load_matrices<!ALONG_K>(pairs, ALONG_K ? tile + (outer + lane % 8) * PITCH + k * 2
	                                               : tile + (k + lane % 8) * PITCH + outer * 2);
}

#endif

} // namespace

#endif
