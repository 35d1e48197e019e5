/* unary_function.cuh: the functions of unary_function.h in f32, on GPUs. */
#ifndef KOPS_KERNELS_UNARY_FUNCTION_CUH
#define KOPS_KERNELS_UNARY_FUNCTION_CUH

#include <math.h>

#include "elementwise/unary_function.h"

namespace
{

__device__ __forceinline__ float sigmoid(float z)
{
	return __fdividef(1, 1 + __expf(-z));
}

/* v · σ(v · P(v²)), with the terms of P. */
__device__ __forceinline__ float bent(float v, const float (&terms)[UNARY_TERMS])
{
	float square = fminf(v * v, UNARY_SQUARE_MAX), p = terms[UNARY_TERMS - 1];

#pragma unroll
	for (int i = UNARY_TERMS - 2; i >= 0; i--)
		p = fmaf(p, square, terms[i]);
	return v * sigmoid(v * p);
}

} // namespace

#endif
