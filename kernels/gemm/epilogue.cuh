/*
 * epilogue.cuh: how sums become elements of C: alpha · sum + beta · C, rounded once to C's type. Every main
 * loop of ours ends with it. With beta 0 it does not read C, so NaN in it does no harm.
 *
 * SUM: the type of the sums, in which alpha and beta are applied. OUT: the type of C.
 */
#ifndef KOPS_KERNELS_GEMM_EPILOGUE_H
#define KOPS_KERNELS_GEMM_EPILOGUE_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>

#include "gemm/problem.h"

namespace
{

/* An element of an operand. */
template <class T>
__device__ __forceinline__ T *element_at(const gemm_operand &o, uint64_t batch, int64_t row, int64_t col)
{
	return (T *)o.data + (int64_t)batch * o.batch + row * o.row + col * o.col;
}

/* N neighbours that are read and written in one access. */
template <class T, int N> struct alignas(N * sizeof(T)) vector_of {
	T at[N];
};

template <class SUM> struct epilogue {
	SUM alpha, beta;

	/* Whether the result depends on what C was before. */
	__device__ __forceinline__ bool keeps_old() const
	{
		return beta != 0;
	}
	/* The two steps, for who reads C ahead. */
	__device__ __forceinline__ SUM scale(SUM sum) const
	{
		return alpha * sum;
	}
	template <class OUT> __device__ __forceinline__ SUM add_old(SUM scaled, OUT old) const
	{
		return fma(beta, (SUM)old, scaled);
	}

	/* Both at once. Reads `old` only if it matters. */
	template <class OUT> __device__ __forceinline__ OUT element(SUM sum, const OUT &old) const
	{
		return (OUT)(keeps_old() ? add_old(scale(sum), old) : scale(sum));
	}
	template <class OUT> __device__ __forceinline__ void store(OUT *c, SUM sum) const
	{
		*c = element(sum, *c);
	}
	/* To N columns from c on, of which `there` exist. vectors: all or none do, and c is aligned to N. */
	template <int N, class OUT>
	__device__ __forceinline__ void store_columns(OUT *c, int64_t col_stride, int there, bool vectors,
	                                              const SUM *sums) const
	{
		if (vectors && there > 0) {
			vector_of<OUT, N> *all = (vector_of<OUT, N> *)c, v = {};

			if (keeps_old())
				v = *all;
#pragma unroll
			for (int j = 0; j < N; j++)
				v.at[j] = element(sums[j], v.at[j]);
			*all = v;
		} else if (!vectors) {
#pragma unroll
			for (int j = 0; j < N; j++)
				if (j < there)
					store(c + j * col_stride, sums[j]);
		}
	}
};

/* If A and B do not matter, alpha is 0. */
template <class SUM> epilogue<SUM> epilogue_of(const struct op_args *args)
{
	return {gemm_has_product(args) ? (SUM)args->params.gemm.alpha : 0, (SUM)args->params.gemm.beta};
}

/* ---- Pairs of neighbours in C, as f32 ---- */

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

} // namespace

#endif
