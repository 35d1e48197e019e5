/* sums.cuh: the sums of a thread: products of tiles, and how sums get into C. */
#ifndef KOPS_KERNELS_GEMM_SIMT_SUMS_H
#define KOPS_KERNELS_GEMM_SIMT_SUMS_H

#include <cooperative_groups.h>

#include "gemm/simt/shape.cuh"

namespace
{

/* Sums on their way from thread to thread: see sums_of for the order. */
__device__ __forceinline__ void store_four(float *to, const float *sums)
{
	*(float4 *)to = make_float4(sums[1], sums[0], sums[3], sums[2]);
}

__device__ __forceinline__ void store_four(double *to, const double *sums)
{
	*(double2 *)to = make_double2(sums[0], sums[1]);
	*(double2 *)(to + 2) = make_double2(sums[2], sums[3]);
}

__device__ __forceinline__ void add_four(float (&total)[4], const float *sums)
{
	float4 v = *(const float4 *)sums;

	total[0] += v.y, total[1] += v.x, total[2] += v.w, total[3] += v.z;
}

__device__ __forceinline__ void add_four(double (&total)[4], const double *sums)
{
	double2 v = *(const double2 *)sums, w = *(const double2 *)(sums + 2);

	total[0] += v.x, total[1] += v.y, total[2] += w.x, total[3] += w.y;
}

#if __CUDA_ARCH__ >= 900

/* Which group's the thread is, and where its rows and columns begin in the block: 4 of each, and every 16th and
 * 32nd such 4. */
template <class S> struct position {
	int group, row, col;

	__device__ __forceinline__ position()
	{
		int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

		group = S::GROUPS > 1 ? warp / S::WARPS : 0;
		if (S::GROUPS > 1)
			warp %= S::WARPS;
		row = warp % (S::SIDE / S::WARP_ROWS) * S::WARP_ROWS + lane / 8 * 4;
		col = warp / (S::SIDE / S::WARP_ROWS) * S::WARP_COLS + lane % 8 * 4;
	}
	/* The block's row of the thread's row i. */
	__device__ __forceinline__ int row_of(int i) const
	{
		return row + i / 4 * 16 + i % 4;
	}
};

/*
 * The sums of a thread, and what it multiplies: two k's of its rows and columns.
 *
 * What makes it fast is what the registers' two banks can deliver, two operands per cycle: of each FMA's three
 * operands one must be the one just used (rows forth and back over the columns), and the other two be of
 * different parity. The compiler puts float4s of A and B in aligned registers; sums that it must store as
 * float4s with columns exchanged in pairs get the other parity than B's columns.
 */
template <class S> struct sums_of {
	static constexpr int ROWS = S::ROWS, COLS = S::COLS;
	static_assert(!S::IN_F64 || S::GROUPS > 1, "sums in f64 go by way of shared memory");

	float sums[ROWS][COLS] = {}, a[2][ROWS], b[2][COLS];
	typename S::sum before[S::IN_F64 ? ROWS : 1][S::IN_F64 ? COLS : 1] = {};
	const float *a_from, *b_from; /* its first row and column, k = 0 of a part */

	template <class TILES>
	__device__ __forceinline__ void read_from(const TILES &tiles, const position<S> &pos, int stage,
	                                          int half)
	{
		a_from = tiles.a_at(stage, half) + pos.row;
		b_from = tiles.b_at(stage, half) + pos.col;
	}
	__device__ __forceinline__ void next_part()
	{
		a_from += S::PART * S::SIDE;
		b_from += S::PART * S::SIDE;
	}
	__device__ __forceinline__ void read(int k)
	{
#pragma unroll
		for (int i = 0; i < ROWS; i += 4)
			load_four(&a[k % 2][i], a_from + k * S::SIDE + i * 4);
#pragma unroll
		for (int j = 0; j < COLS; j += 4)
			load_four(&b[k % 2][j], b_from + k * S::SIDE + j * 8);
	}
	__device__ __forceinline__ void add_products(int k)
	{
#pragma unroll
		for (int i = 0; i < ROWS; i++)
#pragma unroll
			for (int n = 0; n < COLS; n++) {
				int j = i % 2 ? COLS - 1 - n : n;
				sums[i][j] = fmaf(a[k % 2][i], b[k % 2][j], sums[i][j]);
			}
	}
	__device__ __forceinline__ void keep_in_f64()
	{
#pragma unroll
		for (int i = 0; i < ROWS; i++)
#pragma unroll
			for (int j = 0; j < COLS; j++) {
				before[i][j] += (double)sums[i][j];
				sums[i][j] = 0;
			}
	}
	/* To shared memory, SIDE × SIDE for each group. */
	__device__ __forceinline__ void store(float *memory, const position<S> &pos) const
	{
#pragma unroll
		for (int i = 0; i < ROWS; i++)
#pragma unroll
			for (int j = 0; j < COLS; j += 4) {
				auto *to = (typename S::sum *)memory +
				           (pos.group * S::SIDE + pos.row_of(i)) * S::SIDE + pos.col + j * 8;
				if constexpr (S::IN_F64)
					store_four(to, &before[i][j]);
				else
					store_four(to, &sums[i][j]);
			}
	}
	/* To C, of which c is the block's first element. */
	__device__ __forceinline__ void write(const gemm_task &t, const place &at, float *c,
	                                      const position<S> &pos) const
	{
#pragma unroll
		for (int i = 0; i < ROWS; i++) {
			int r = pos.row_of(i);
			if (r >= at.rows)
				continue;
#pragma unroll
			for (int j = 0; j < COLS; j += 4)
				write_four(t, at, r, pos.col + j * 8,
				           c + r * t.p.c.row + (pos.col + j * 8) * t.p.c.col,
				           at.cols - pos.col - j * 8, sums[i] + j);
		}
	}
};

/* What is read before the first product: the first tile, turned. */
template <class S, class TILES>
__device__ __forceinline__ void read_first(TILES &tiles, sums_of<S> &sums, const position<S> &pos)
{
	tiles.await(0, 0);
#pragma unroll 1
	for (int part = 0; part < S::PARTS; part++) {
		tiles.hold(0, part);
		tiles.turn(0, part);
	}
	if (TILES::TURNED)
		__syncthreads();
	sums.read_from(tiles, pos, 0, 0);
	sums.read(0);
}

/*
 * Adds the products of the tile in `stage`, and reads the first k of that in `next`. What is left of it is
 * turned meanwhile, and where the stage is wanted again, its tiles are sent for. After the last tile another is
 * turned and read that nobody uses.
 */
template <class S, class TILES>
__device__ __forceinline__ void add_tile(TILES &tiles, sums_of<S> &sums, const position<S> &pos, int stage,
                                         int next, int half, bool wanted)
{
	constexpr int PART = S::PART, LAST = S::PARTS - 1;

#pragma unroll 1
	for (int part = 0; part <= LAST; part++) {
		tiles.hold(next, part);
#pragma unroll
		for (int k = 0; k < PART; k++) {
			if (k == PART - 1) {
				sums.next_part();
				if (part == LAST) {
					__syncthreads();
					if (wanted)
						tiles.bring(stage);
					sums.read_from(tiles, pos, next, half);
				}
			}
			sums.read((k + 1) % PART);
			sums.add_products(k);
			if (k == PART / 2)
				tiles.turn(half, part);
		}
	}
}

/* Each block of the cluster adds up a share of the sums of all, always in the same order. */
template <class S>
__device__ __forceinline__ void write_share(const gemm_task &t, const place &at, float *c, float *memory,
                                            int rank, int splits)
{
	constexpr int SIDE = S::SIDE;
	auto cluster = cooperative_groups::this_cluster();
	int share = SIDE * SIDE / 4 / splits;

	cluster.sync();
	for (int i = rank * share + threadIdx.x; i < (rank + 1) * share; i += S::THREADS) {
		int r = i * 4 / SIDE, first_col = i * 4 % SIDE;
		typename S::sum total[4] = {};

		for (int s = 0; s < splits; s++) {
			const auto *part = (const typename S::sum *)cluster.map_shared_rank(memory, s) + i * 4;
#pragma unroll
			for (int g = 0; g < S::GROUPS; g++)
				add_four(total, part + g * SIDE * SIDE);
		}
		const float rounded[4] = {(float)total[0], (float)total[1], (float)total[2], (float)total[3]};
		if (r < at.rows)
			write_four(t, at, r, first_col, c + r * t.p.c.row + first_col * t.p.c.col,
			           at.cols - first_col, rounded);
	}
	cluster.sync();
}

#endif

} // namespace

#endif
