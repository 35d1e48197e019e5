/*
 * barrier.cuh: how threads wait. A barrier in shared memory is named by the address of its 8 bytes; `count`
 * arrivals and the bytes expected complete a phase.
 */
#ifndef KOPS_KERNELS_HOPPER_BARRIER_H
#define KOPS_KERNELS_HOPPER_BARRIER_H

#include <stdint.h>

namespace hopper
{

#if __CUDA_ARCH__ >= 900

__device__ __forceinline__ void barrier_init(uint32_t barrier, unsigned count)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

/* Makes what barrier_init() wrote visible to the cluster and to the copy engine. */
__device__ __forceinline__ void barriers_ready()
{
	asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* Arrives, and expects so many bytes more. */
__device__ __forceinline__ void barrier_expect(uint32_t barrier, unsigned bytes)
{
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
	             : "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier)
{
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Arrives at the barrier that lies at the same address in this block of the cluster. */
__device__ __forceinline__ void barrier_arrive(uint32_t barrier, unsigned block)
{
	asm volatile("{\n"
	             ".reg .b32 there;\n"
	             "mapa.shared::cluster.u32 there, %0, %1;\n"
	             "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
	             "}" ::"r"(barrier),
	             "r"(block)
	             : "memory");
}

/* Arrives once the copies of async_copy.cuh that this thread began have ended. */
__device__ __forceinline__ void barrier_arrive_copied(uint32_t barrier)
{
	asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

/* Waits for the phase of this parity to complete. */
__device__ __forceinline__ void barrier_wait(uint32_t barrier, unsigned parity)
{
	asm volatile("{\n"
	             ".reg .pred done;\n"
	             "again:\n"
	             "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
	             "@!done bra again;\n"
	             "}" ::"r"(barrier),
	             "r"(parity)
	             : "memory");
}

/* Meets THREADS threads of this block, by one of its 16 named barriers; 0 is that of __syncthreads(). */
template <int THREADS> __device__ __forceinline__ void threads_sync(int barrier)
{
	asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(THREADS) : "memory");
}

/* Arrives there without waiting. */
template <int THREADS> __device__ __forceinline__ void threads_arrive(int barrier)
{
	asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(THREADS) : "memory");
}

#endif

} // namespace hopper

#endif
