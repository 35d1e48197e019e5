/* async_copy.cuh: copies into shared memory by cp.async; barrier_arrive_copied() of barrier.cuh awaits them. */
#ifndef KOPS_KERNELS_HOPPER_ASYNC_COPY_H
#define KOPS_KERNELS_HOPPER_ASYNC_COPY_H

#include <stdint.h>

namespace hopper
{

#if __CUDA_ARCH__ >= 900

/* One element, or a zero. */
__device__ __forceinline__ void copy_element(uint32_t to, const float *from, bool there)
{
	asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(there ? 4 : 0)
	             : "memory");
}

/* 16 bytes, both addresses multiples of that; zeros behind the first `there` bytes. */
__device__ __forceinline__ void copy_piece(uint32_t to, const void *from, int there)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there)
	             : "memory");
}

#endif

} // namespace hopper

#endif
