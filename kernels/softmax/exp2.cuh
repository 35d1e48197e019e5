/* exp2.cuh: the one instruction of softmax that CUDA C++ has no word for. */
#ifndef KOPS_KERNELS_SOFTMAX_EXP2_H
#define KOPS_KERNELS_SOFTMAX_EXP2_H

namespace
{

/* Results below the smallest normal number are 0. */
__device__ __forceinline__ float exp2_fast(float x)
{
	float y;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

} // namespace

#endif
