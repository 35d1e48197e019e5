/*
 * bulk.cuh: tiles of a matrix by the bulk copy engine (TMA), and the barriers in shared memory on which such
 * copies complete.
 */
#ifndef KOPS_KERNELS_GEMM_BULK_H
#define KOPS_KERNELS_GEMM_BULK_H

#include "map.cuh"

namespace
{

__device__ __forceinline__ uint32_t shared_address(const void *p)
{
	return (uint32_t)__cvta_generic_to_shared(p);
}

__device__ __forceinline__ void barrier_init(uint64_t *barrier, unsigned arrivals)
{
	asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
	             : "memory");
}

/* Before the first copy on barriers just initialised. */
__device__ __forceinline__ void barriers_visible()
{
	asm volatile("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(uint64_t *barrier)
{
	asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

/* Arrives, and has the barrier wait for this many bytes of copies. */
__device__ __forceinline__ void barrier_expect(uint64_t *barrier, unsigned bytes)
{
	asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
	             "r"(bytes)
	             : "memory");
}

/* Arrives once the cp.asyncs of this thread are done. */
__device__ __forceinline__ void barrier_arrive_copied(uint64_t *barrier)
{
	asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(barrier))
	             : "memory");
}

/* Until the phase of this parity is over. */
__device__ __forceinline__ void barrier_wait(uint64_t *barrier, unsigned parity)
{
	asm volatile("{\n\t"
	             ".reg .pred done;\n"
	             "again:\n\t"
	             "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n\t"
	             "@!done bra again;\n\t"
	             "}" ::"r"(shared_address(barrier)),
	             "r"(parity)
	             : "memory");
}

/* The box of the map at (x, y, z), x along its lines. */
__device__ __forceinline__ void copy_box(float *to, const CUtensorMap *map, int x, int y, int z,
                                         uint64_t *barrier)
{
	asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
	             "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(shared_address(to)),
	             "l"(map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier))
	             : "memory");
}

/* One element, or a zero. */
__device__ __forceinline__ void copy_element(float *to, const float *from, bool there)
{
	asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from),
	             "r"(there ? 4 : 0)
	             : "memory");
}

} // namespace

#endif
