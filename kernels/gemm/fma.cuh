/* fma.cuh: FMAs and loads that the compiler leaves in the order in which they stand. */
#ifndef KOPS_KERNELS_FMA_H
#define KOPS_KERNELS_FMA_H

#include <stdint.h>

namespace
{

__device__ __forceinline__ void add_product(float &sum, float a, float b)
{
	asm volatile("fma.rn.f32 %0, %1, %2, %0;" : "+f"(sum) : "f"(a), "f"(b));
}

__device__ __forceinline__ void load_quad(float *to, uint32_t from)
{
	asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
	             : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
	             : "r"(from));
}

} // namespace

#endif
