/* tiles.cuh: how tiles of A and B come into shared memory, and are turned there. */
#ifndef KOPS_KERNELS_GEMM_SIMT_TILES_H
#define KOPS_KERNELS_GEMM_SIMT_TILES_H

#include "common/hopper/async_copy.cuh"
#include "common/hopper/barrier.cuh"
#include "common/hopper/shared.cuh"
#include "common/hopper/tma.cuh"
#include "gemm/simt/shape.cuh"

namespace
{

/*
 * A tile of A or B. Threads read it with the outer axis as lines, SIDE elements per k. Where the lines in
 * memory run along K it comes in as SIDE lines of STEP, their 16-byte pieces exchanged as the copy engine does
 * it so that 8 lines meet 32 banks, and the threads turn it.
 */
template <class S, bool ALONG_K> struct tile_of {
	float held[S::FOURS][4]; /* on their way from the one form to the other */

	__device__ __forceinline__ static int along_k(int outer, int piece)
	{
		return outer * STEP + (piece ^ (outer & (STEP / 4 - 1))) * 4;
	}
	__device__ __forceinline__ static int in_group()
	{
		return S::GROUPS > 1 ? threadIdx.x % S::GROUP : threadIdx.x;
	}
	__device__ __forceinline__ static int outer_of(int i)
	{
		return (S::LINES > 1 ? in_group() % S::SIDE : in_group()) + i % S::PER_LINE * S::GROUP;
	}
	__device__ __forceinline__ static int piece_of(int i)
	{
		return (S::LINES > 1 ? in_group() / S::SIDE : 0) + i / S::PER_LINE * S::LINES;
	}
	__device__ __forceinline__ void hold(const float *tile, int part)
	{
#pragma unroll
		for (int i = 0; i < S::FOURS; i++)
			load_four(held[i], tile + along_k(outer_of(i), part * (S::PART / 4) + piece_of(i)));
	}
	__device__ __forceinline__ void turn(float *to) const
	{
#pragma unroll
		for (int i = 0; i < S::FOURS; i++)
#pragma unroll
			for (int j = 0; j < 4; j++)
				to[(piece_of(i) * 4 + j) * S::SIDE + outer_of(i)] = held[i][j];
	}

#if __CUDA_ARCH__ >= 900
	/* All threads together, 16 bytes at a time. */
	__device__ static void bring_pieces(uint32_t to, const float *from, int64_t outer_stride,
	                                    int64_t k_stride, int outer_end, int k_end)
	{
		constexpr int ACROSS = (ALONG_K ? STEP : S::SIDE) / 4;

#pragma unroll
		for (int i = threadIdx.x; i < S::TILE / 4; i += S::THREADS) {
			int line = i / ACROSS, piece = i % ACROSS;
			int there = (ALONG_K ? k_end : outer_end) - piece * 4;
			const float *at = from + line * (ALONG_K ? outer_stride : k_stride) + piece * 4;

			there = line < (ALONG_K ? outer_end : k_end) ? max(min(there, 4), 0) : 0;
			hopper::copy_piece(to + (ALONG_K ? along_k(line, piece) : i * 4) * 4, there ? at : from,
			                   there * 4);
		}
	}
	/* Element by element. */
	__device__ static void bring(uint32_t to, const float *from, int64_t outer_stride, int64_t k_stride,
	                             int outer_end, int k_end)
	{
#pragma unroll 4
		for (int i = threadIdx.x; i < S::TILE; i += S::THREADS) {
			int outer = ALONG_K ? i / STEP : i % S::SIDE, k = ALONG_K ? i % STEP : i / S::SIDE;
			bool there = outer < outer_end && k < k_end;

			hopper::copy_element(to + (ALONG_K ? along_k(outer, k / 4) + k % 4 : i) * 4,
			                     there ? from + outer * outer_stride + k * k_stride : from, there);
		}
	}
	__device__ __forceinline__ static void bring_box(uint32_t to, const CUtensorMap *map, uint64_t outer,
	                                                 uint64_t k, uint64_t batch, uint32_t full)
	{
		if (ALONG_K)
			hopper::copy_box(to, map, (int)k, (int)outer, (int)batch, full);
		else
			hopper::copy_box(to, map, (int)outer, (int)k, (int)batch, full);
	}
#endif
};

#if __CUDA_ARCH__ >= 900

/*
 * The tiles of A and B for one block: STAGES of each in shared memory, on their way or there, then two turned
 * ones of each operand that comes along K. half: 0 or TILE, which of the two.
 *
 * Where lines do not begin at multiples of 16 bytes, all bring elements, at less than half the speed of boxes.
 * How they come changes nothing in the result.
 */
template <class WORK, class S, bool A_ALONG_K, bool B_ALONG_K, loading LOADING> struct tiles_of {
	static constexpr int TILE = S::TILE, TURNED = A_ALONG_K + B_ALONG_K;

	const WORK &w;
	place at;
	uint64_t next; /* tile along K that has not been sent for */
	int group;
	float *memory, *a_turned, *b_turned;
	uint32_t shared, full; /* full: a barrier for each stage */
	tile_of<S, A_ALONG_K> a;
	tile_of<S, B_ALONG_K> b;

	__device__ __forceinline__ tiles_of(const WORK &w, const place &at, uint64_t first, int group,
	                                    float *memory)
	    : w(w), at(at), next(first), group(group), memory(memory)
	{
		shared = hopper::shared_address(memory);
		full = shared + S::floats(TURNED, w.splits > 1) * 4;
		a_turned = memory + S::STAGES * 2 * TILE;
		b_turned = a_turned + (A_ALONG_K ? 2 * TILE : 0);
	}
	__device__ __forceinline__ void make_barriers() const
	{
		if (threadIdx.x == 0) {
			for (int i = 0; i < S::STAGES; i++)
				hopper::barrier_init(full + i * 8, LOADING == BOXES ? 1 : S::THREADS);
			hopper::barriers_ready();
		}
		__syncthreads();
	}

	__device__ __forceinline__ void bring_boxes(uint32_t to, uint64_t k, uint32_t full_here) const
	{
		const gemm_problem &p = w.t.p;

		if (threadIdx.x != 0)
			return;
		hopper::barrier_expect(full_here, 2 * TILE * 4);
		a.bring_box(to, &w.a_map, at.row, k, p.a.batch ? at.batch : 0, full_here);
		b.bring_box(to + TILE * 4, &w.b_map, at.col, k, p.b.batch ? at.batch : 0, full_here);
	}
	__device__ __forceinline__ void bring_by_all(uint32_t to, uint64_t k, uint32_t full_here) const
	{
		const gemm_problem &p = w.t.p;
		int k_end = rest_of<STEP>(p.k, k);
		const float *a_from = w.a(at.batch) + (int64_t)at.row * p.a.row + (int64_t)k * p.a.col;
		const float *b_from = w.b(at.batch) + (int64_t)at.col * p.b.col + (int64_t)k * p.b.row;

		if (LOADING == PIECES) {
			a.bring_pieces(to, a_from, p.a.row, p.a.col, at.rows, k_end);
			b.bring_pieces(to + TILE * 4, b_from, p.b.col, p.b.row, at.cols, k_end);
		} else {
			a.bring(to, a_from, p.a.row, p.a.col, at.rows, k_end);
			b.bring(to + TILE * 4, b_from, p.b.col, p.b.row, at.cols, k_end);
		}
		hopper::barrier_arrive_copied(full_here);
	}
	/* Sends for the next tile of each. */
	__device__ __forceinline__ void bring(int stage)
	{
		uint32_t to = shared + stage * 2 * TILE * 4, full_here = full + stage * 8;
		uint64_t k = next++ * STEP;

		if constexpr (LOADING == BOXES)
			bring_boxes(to, k, full_here);
		else
			bring_by_all(to, k, full_here);
	}
	__device__ __forceinline__ void await(int stage, unsigned parity) const
	{
		hopper::barrier_wait(full + stage * 8, parity);
	}

	/* The group's k's begin so far into a tile. */
	__device__ __forceinline__ int group_at() const
	{
		return group * S::PARTS * S::PART * S::SIDE;
	}
	__device__ __forceinline__ void hold(int stage, int part)
	{
		if constexpr (A_ALONG_K)
			a.hold(memory + stage * 2 * TILE, group * S::PARTS + part);
		if constexpr (B_ALONG_K)
			b.hold(memory + stage * 2 * TILE + TILE, group * S::PARTS + part);
	}
	__device__ __forceinline__ void turn(int half, int part) const
	{
		if constexpr (A_ALONG_K)
			a.turn(a_turned + half + group_at() + part * S::PART * S::SIDE);
		if constexpr (B_ALONG_K)
			b.turn(b_turned + half + group_at() + part * S::PART * S::SIDE);
	}
	/* Where the group reads a stage's tile of A, and of B. */
	__device__ __forceinline__ const float *a_at(int stage, int half) const
	{
		return (A_ALONG_K ? a_turned + half : memory + stage * 2 * TILE) + group_at();
	}
	__device__ __forceinline__ const float *b_at(int stage, int half) const
	{
		return (B_ALONG_K ? b_turned + half : memory + stage * 2 * TILE + TILE) + group_at();
	}
};

#endif

} // namespace

#endif
