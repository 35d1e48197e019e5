/* cluster.cuh: how the blocks of a cluster meet, and write to each other's shared memory. */
#ifndef KOPS_KERNELS_HOPPER_CLUSTER_H
#define KOPS_KERNELS_HOPPER_CLUSTER_H

#include <stdint.h>

namespace hopper
{

#if __CUDA_ARCH__ >= 900

__device__ __forceinline__ unsigned cluster_rank()
{
	unsigned rank;

	asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
	return rank;
}

__device__ __forceinline__ void cluster_sync()
{
	asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
	                 : "memory");
}

/* As cluster_sync(), but what a block wrote before is not yet there for the others. */
__device__ __forceinline__ void cluster_meet()
{
	asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

/* The same place in another block of the cluster. */
__device__ __forceinline__ uint32_t address_in(unsigned block, uint32_t address)
{
	uint32_t there;

	asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
	return there;
}

__device__ __forceinline__ void store_there(uint32_t address, float value)
{
	asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}

__device__ __forceinline__ void store_there(uint32_t address, float4 v)
{
	asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(v.x), "f"(v.y),
	             "f"(v.z), "f"(v.w)
	             : "memory");
}

#endif

} // namespace hopper

#endif
