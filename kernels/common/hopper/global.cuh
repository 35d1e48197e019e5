/* global.cuh: loads and stores of global memory that CUDA C++ has no words for. */
#ifndef KOPS_KERNELS_HOPPER_GLOBAL_H
#define KOPS_KERNELS_HOPPER_GLOBAL_H

#include <stdint.h>

namespace hopper
{

/* Two words that are written and read together. */
struct alignas(16) words {
	uint64_t first, second;
};

/* 16 bytes that nobody reads again soon: they take no room in L1. */
__device__ __forceinline__ uint4 load_once(const uint4 *from)
{
#if __CUDA_ARCH__ >= 900
	uint4 v;

	asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
	             : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
	             : "l"(from)
	             : "memory");
	return v;
#else
	return *from;
#endif
}

#if __CUDA_ARCH__ >= 900

/* ---- Words that other blocks write while this one reads them ---- */

__device__ __forceinline__ void store_relaxed(words *to, const words &w)
{
	asm volatile("{\n"
	             ".reg .b128 both;\n"
	             "mov.b128 both, {%1, %2};\n"
	             "st.relaxed.gpu.global.b128 [%0], both;\n"
	             "}" ::"l"(to),
	             "l"(w.first), "l"(w.second)
	             : "memory");
}

__device__ __forceinline__ words load_relaxed(const words *from)
{
	words w;

	asm volatile("{\n"
	             ".reg .b128 both;\n"
	             "ld.relaxed.gpu.global.b128 both, [%2];\n"
	             "mov.b128 {%0, %1}, both;\n"
	             "}"
	             : "=l"(w.first), "=l"(w.second)
	             : "l"(from)
	             : "memory");
	return w;
}

/* ---- Sums that only one thread touches ---- */

/* Does not wait. A thread's numbers are added in its order, so that sums are the same in every run, and its
 * load_global() sees them all. Denormal sums become 0. */
__device__ __forceinline__ void add_to_global(float4 *to, float4 x)
{
	asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x.x), "f"(x.y),
	             "f"(x.z), "f"(x.w)
	             : "memory");
}

__device__ __forceinline__ float4 load_global(const float4 *from)
{
	float4 x;

	asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
	             : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
	             : "l"(from)
	             : "memory");
	return x;
}

#endif

} // namespace hopper

#endif
