/* found.cuh: whether pairs of f16 are accurate. */
#ifndef KOPS_KERNELS_ATTENTION_F16X3_FOUND_CUH
#define KOPS_KERNELS_ATTENTION_F16X3_FOUND_CUH

#include "attention/f16x3/found.h"

namespace
{

/*
 * Whether two f16 hold the operands well enough. A number of k that is small beside the largest of its tile is
 * held to 2^-39 of that. Scores, which are exponents of two, are then off by up to 2^-39 of the product of both
 * numbers here.
 */
__device__ __forceinline__ bool split_fits(const split_found *from)
{
	const float most = 0x1p19f;
	uint4 v = *(const uint4 *)from;

	return v.x == 0 && __uint_as_float(v.y) * __uint_as_float(v.z) <= most;
}

} // namespace

#endif
