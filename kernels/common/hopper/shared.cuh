/* shared.cuh: shared memory by its 32-bit address. */
#ifndef KOPS_KERNELS_HOPPER_SHARED_H
#define KOPS_KERNELS_HOPPER_SHARED_H

#include <stdint.h>

namespace hopper
{

__device__ __forceinline__ uint32_t shared_address(const void *p)
{
	return (uint32_t)__cvta_generic_to_shared(p);
}

#if __CUDA_ARCH__ >= 900

__device__ __forceinline__ void store_shared(uint32_t address, float value)
{
	asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}

__device__ __forceinline__ void store_pair(uint32_t address, float x, float y)
{
	asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x), "f"(y) : "memory");
}

__device__ __forceinline__ float load_shared(uint32_t address)
{
	float value;

	asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
	return value;
}

__device__ __forceinline__ float4 load_shared_quad(uint32_t address)
{
	float4 v;

	asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
	             : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
	             : "r"(address)
	             : "memory");
	return v;
}

__device__ __forceinline__ void store_shared_quad(uint32_t address, float4 v)
{
	asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(v.x), "f"(v.y), "f"(v.z),
	             "f"(v.w)
	             : "memory");
}

#endif

} // namespace hopper

#endif
