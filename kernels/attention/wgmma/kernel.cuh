/*
 * kernel.cuh: attention of f16 and bf16 by products of warpgroups.
 *
 * A block keeps to one multiprocessor, and goes through tiles. One thread has the copy engine bring q, k and v
 * into stages in shared memory. Each of the other warpgroups, a team, has 64 queries of the block's tile. It
 * multiplies a tile of keys, makes weights of the scores in registers, and multiplies a tile of values by these
 * from there. Products are under way while a team weighs: those with the values of the tile before, and those
 * of the other teams, which take turns. A tile's first scores are computed with the last values of the one
 * before, where there is room for the queries of both.
 */
#ifndef KOPS_KERNELS_ATTENTION_WGMMA_KERNEL_H
#define KOPS_KERNELS_ATTENTION_WGMMA_KERNEL_H

#include "attention/wgmma/load.cuh"
#include "attention/wgmma/team.cuh"
#include "common/overlap.cuh"

namespace
{

template <class CUT, class T>
__global__ void __launch_bounds__(CUT::THREADS, 1) attend_mapped(const __grid_constant__ wgmma_work w)
{
#ifdef KOPS_HOPPER
	extern __shared__ char shared[];
	attention_memory<CUT> memory(hopper::shared_address(shared));
	/* Of its first thread, so that the compiler sees that it is the same for a warp. */
	int warpgroup = __shfl_sync(~0u, (int)threadIdx.x / TEAM_THREADS, 0);

	let_next_kernel_come();
	if (threadIdx.x == 0)
		memory.init(w);
	__syncthreads();
	await_kernel_before();
	if (warpgroup == 0) {
		hopper::fewer_registers<CUT::LOADER_REGISTERS>();
		if (threadIdx.x == 0)
			load_tiles<CUT>(w, memory);
	} else {
		hopper::more_registers<CUT::TEAM_REGISTERS>();
		attend_tiles<CUT, T>(w, memory, warpgroup - 1);
	}
#endif
}

} // namespace

#endif
