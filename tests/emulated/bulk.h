/* bulk.h: what kernels/gemm/bulk.cuh has, emulated; see there. */
#ifndef KOPS_EMULATED_BULK_H
#define KOPS_EMULATED_BULK_H

#define KOPS_KERNELS_GEMM_BULK_H /* so that it is not included any more */

#include "instructions.h"

#include "gemm/map.cuh"

namespace
{

using emulator::shared_address;

inline void barrier_init(uint64_t *barrier, unsigned arrivals)
{
	hopper::barrier_init(shared_address(barrier), arrivals);
}

inline void barriers_visible()
{
}

inline void barrier_arrive(uint64_t *barrier)
{
	hopper::barrier_arrive(shared_address(barrier));
}

inline void barrier_expect(uint64_t *barrier, unsigned bytes)
{
	hopper::barrier_expect(shared_address(barrier), bytes);
}

inline void barrier_wait(uint64_t *barrier, unsigned parity)
{
	hopper::barrier_wait(shared_address(barrier), parity);
}

inline void copy_box(float *to, const CUtensorMap *map, int x, int y, int z, uint64_t *barrier)
{
	hopper::copy_box(shared_address(to), map, x, y, z, shared_address(barrier));
}

inline void barrier_arrive_copied(uint64_t *barrier)
{
	emulator::mbarrier_arrive_copied(shared_address(barrier));
}

inline void copy_element(float *to, const float *from, bool there)
{
	emulator::copy_element(to, there ? from : nullptr);
}

} // namespace

#endif
