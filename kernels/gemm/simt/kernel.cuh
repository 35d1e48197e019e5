/* kernel.cuh: the kernel of simt: the main loop over tiles of K. */
#ifndef KOPS_KERNELS_GEMM_SIMT_KERNEL_H
#define KOPS_KERNELS_GEMM_SIMT_KERNEL_H

#include "common/overlap.cuh"
#include "gemm/simt/sums.cuh"
#include "gemm/simt/tiles.cuh"

namespace
{

template <class WORK, class S, bool A_ALONG_K, bool B_ALONG_K, loading LOADING>
__global__ void __launch_bounds__(S::THREADS, S::RESIDENT) simt(const __grid_constant__ WORK w)
{
#if __CUDA_ARCH__ >= 900
	constexpr int STAGES = S::STAGES, BAND = 8;
	extern __shared__ __align__(1024) float memory[];
	const gemm_problem &p = w.t.p;
	int rank = blockIdx.x % w.splits;
	place at = place_of_block<S::SIDE, BAND>(w.t, w.t.first + blockIdx.x / w.splits);
	uint64_t all = (p.k + STEP - 1) / STEP, first = part_begin(all, rank, w.splits);
	unsigned steps = (unsigned)(part_begin(all, rank + 1, w.splits) - first);
	position<S> pos;
	tiles_of<WORK, S, A_ALONG_K, B_ALONG_K, LOADING> tiles(w, at, first, pos.group, memory);
	sums_of<S> sums;

	tiles.make_barriers();
	await_kernel_before();
	let_next_kernel_come();

	for (int i = 0; i < STAGES && i < steps; i++)
		tiles.bring(i);
	if (steps > 0)
		read_first(tiles, sums, pos);
	int stage = 0, half = 0; /* half: where the turned tile of the next stage goes */
	unsigned parity = 0;
#pragma unroll 1
	for (unsigned left = steps; left > 0; left--) {
		int next = stage + 1 == STAGES ? 0 : stage + 1;

		parity ^= next == 0;
		half ^= S::TILE;
		if (left > 1)
			tiles.await(next, parity);
		add_tile(tiles, sums, pos, stage, next, half, left > STAGES);
		stage = next;
		if constexpr (S::IN_F64)
			sums.keep_in_f64();
	}

	float *c = w.c(at.batch) + (int64_t)at.row * p.c.row + (int64_t)at.col * p.c.col;
	const gemm_task &t = w.task(at.batch);
	if (S::GROUPS == 1 && w.splits == 1) {
		sums.write(t, at, c, pos);
		return;
	}
	__syncthreads();
	sums.store(memory, pos);
	write_share<S>(t, at, c, memory, rank, w.splits);
#endif
}

} // namespace

#endif
