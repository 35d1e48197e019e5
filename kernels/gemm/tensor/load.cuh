/* load.cuh: how one thread has the copy engine bring tiles of A and B. */
#ifndef KOPS_KERNELS_GEMM_TENSOR_LOAD_H
#define KOPS_KERNELS_GEMM_TENSOR_LOAD_H

#include "common/hopper/tma.cuh"
#include "gemm/tensor/form.cuh"

namespace
{

#ifdef KOPS_HOPPER

/*
 * ALL rows of A or columns of B from `first` on, TILE_DEPTH of K from k on. SHARERS: each, by its rank, brings
 * a part of them, to the same place in each.
 */
template <bool ACROSS, int BOX, int ALL, int SHARERS>
__device__ __forceinline__ void fetch(uint32_t to, const CUtensorMap *map, unsigned first, unsigned k,
                                      unsigned batch, uint32_t barrier, unsigned rank)
{
	constexpr int PART = ALL / SHARERS;
	static_assert(PART % BOX == 0);

	if constexpr (SHARERS > 1) {
		first += rank * PART;
		to += rank * PART * LINE_BYTES;
	}
#pragma unroll
	for (int i = 0; i < PART; i += BOX) {
		int x = (int)(ACROSS ? first + i : k), y = (int)(ACROSS ? k : first + i);
		if constexpr (SHARERS > 1)
			hopper::copy_box_to((1 << SHARERS) - 1, to + i * LINE_BYTES, map, x, y, (int)batch,
			                    barrier);
		else
			hopper::copy_box(to + i * LINE_BYTES, map, x, y, (int)batch, barrier);
	}
}

/* One thread. */
template <class F> __device__ __forceinline__ void produce(const work &w, pipeline<typename F::CUT> r)
{
	using CUT = typename F::CUT;
	unsigned rank = CUT::SHARERS > 1 ? hopper::cluster_rank() : 0, blocks = cluster_blocks<CUT>(w);
	span span = span_of<CUT>(w);

	for (tile_walk<unsigned> walk(blocks); walk.tile < w.tiles; walk.step()) {
		place at = place_of<F>(w, walk.tile);
#pragma unroll 1
		for (unsigned k = span.begin; k < span.end; k++, r.step()) {
			hopper::barrier_wait(r.empty(), r.parity ^ 1);
			hopper::barrier_expect(r.full(), CUT::STAGE_BYTES);
			fetch<F::A_ACROSS, F::A_BOX, CUT::ROWS, CUT::BESIDE>(
			    r.bytes(), &w.a, at.row, k * F::TILE_DEPTH, at.batch * w.a_batch, r.full(), rank);
			fetch<F::B_ACROSS, F::B_BOX, CUT::COLS, CUT::BELOW>(
			    r.bytes() + CUT::A_BYTES, &w.b, at.col, k * F::TILE_DEPTH, at.batch * w.b_batch,
			    r.full(), rank);
		}
	}
}

#endif

} // namespace

#endif
