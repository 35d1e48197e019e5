/* compare.cuh: the larger and the smaller of two numbers, in one instruction where there is one. */
#ifndef KOPS_KERNELS_HOPPER_COMPARE_H
#define KOPS_KERNELS_HOPPER_COMPARE_H

namespace hopper
{

/* NaN if one is. */
__device__ __forceinline__ float larger(float a, float b)
{
#if __CUDA_ARCH__ >= 800
	float c;

	asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
	return c;
#else
	return a > b || a != a ? a : b;
#endif
}

__device__ __forceinline__ double larger(double a, double b)
{
	return a > b || a != a ? a : b;
}

__device__ __forceinline__ float smaller(float a, float b)
{
#if __CUDA_ARCH__ >= 800
	float c;

	asm("min.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
	return c;
#else
	return a < b || a != a ? a : b;
#endif
}

__device__ __forceinline__ double smaller(double a, double b)
{
	return a < b || a != a ? a : b;
}

} // namespace hopper

#endif
