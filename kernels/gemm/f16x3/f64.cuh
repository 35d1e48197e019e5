/*
 * f64.cuh: a product of f32 operands in f64, on the tensor cores that Hopper has for it: right for any numbers.
 *
 * A product of two f32 is exact in f64, and whatever the order of a sum, its errors stay below 2^-53 of the sum
 * of magnitudes for each addition: C is rounded once, from a sum that is as good as exact. Nothing overflows
 * before that, so a sum whose terms overflow f32 one by one, but not together, is finite here.
 *
 * Tiles come as in ladder/pipelined.cu and stay f32 in shared memory; a warp has 64 × 32 sums of a block of 128
 * × 128 and widens what it reads, 96 numbers for 2048 products.
 */
#ifndef KOPS_KERNELS_GEMM_F64_H
#define KOPS_KERNELS_GEMM_F64_H

#include "common/hopper/mma.cuh"
#include "gemm/tiles.cuh"

namespace
{

/* As PITCH, but lanes read 8 lines' elements at 4 k's here: 32 banks. */
constexpr int F64_PITCH = EDGE + 8;
/* Of a warp's part of the block, in rows of 16 and columns of 8. */
constexpr int F64_BAND = 8; /* rows of blocks, between which blocks go down column by column */
constexpr int F64_ROWS = 4, F64_COLS = 4;

/* Where a warp's sums begin in the block, and this lane among them. */
struct f64_place {
	int row, col, group, member;

	__device__ f64_place()
	{
		int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

		row = warp / 4 * F64_ROWS * 16;
		col = warp % 4 * F64_COLS * 8;
		group = lane / 4;
		member = lane % 4;
	}
};

typedef double f64_sums[F64_ROWS][F64_COLS][4];

/* Adds the products of a tile of K. */
__device__ __forceinline__ void f64_add_tile(f64_sums &sums, const float *a_tile, const float *b_tile,
                                             const f64_place &me)
{
	const float *a = a_tile + me.member * F64_PITCH + me.row + me.group;
	const float *b = b_tile + me.member * F64_PITCH + me.col + me.group;
	double b_part[F64_COLS][2];

#pragma unroll
	for (int j = 0; j < F64_COLS; j++)
#pragma unroll
		for (int k = 0; k < 2; k++)
			b_part[j][k] = b[k * 4 * F64_PITCH + j * 8];
#pragma unroll
	for (int i = 0; i < F64_ROWS; i++) {
		double a_part[4];
#pragma unroll
		for (int n = 0; n < 4; n++)
			a_part[n] = a[n / 2 * 4 * F64_PITCH + i * 16 + n % 2 * 8];
#pragma unroll
		for (int j = 0; j < F64_COLS; j++)
			hopper::add_products(sums[i][j], a_part, b_part[j]);
	}
}

__device__ __forceinline__ void f64_write(const gemm_task &t, const place &at, const f64_sums &sums,
                                          const f64_place &me)
{
	epilogue<double> to_c = t.to_c.as<double>();
	float *c = block_of_c(t, at);

#pragma unroll
	for (int i = 0; i < F64_ROWS; i++)
#pragma unroll
		for (int j = 0; j < F64_COLS; j++)
#pragma unroll
			for (int n = 0; n < 4; n++) {
				int row = me.row + i * 16 + n / 2 * 8 + me.group;
				int col = me.col + j * 8 + me.member * 2 + n % 2;
				if (row < at.rows && col < at.cols)
					to_c.store<float>(
					    c + row * t.p.c.row + col * t.p.c.col, sums[i][j][n],
					    {at.batch, (int64_t)at.row + row, (int64_t)at.col + col});
			}
}

/* One block of C, by THREADS threads. */
template <bool A_ALONG_K, bool B_ALONG_K, int WIDTH>
__device__ __forceinline__ void f64_block(const gemm_task &t, const place &at,
                                          float (*a_tile)[DEPTH * F64_PITCH],
                                          float (*b_tile)[DEPTH * F64_PITCH])
{
	static_assert(DEPTH == 8 && THREADS / 32 * F64_ROWS * 16 * F64_COLS * 8 == EDGE * EDGE);
	const gemm_problem &p = t.p;
	loader<A_ALONG_K, WIDTH> a(batch_data(p.a, at.batch), p.a.row, p.a.col, at.row, at.rows);
	loader<B_ALONG_K, WIDTH> b(batch_data(p.b, at.batch), p.b.col, p.b.row, at.col, at.cols);
	f64_place me;
	f64_sums sums = {};
	int now = 0;

	a.fetch(p.k);
	b.fetch(p.k);
	for (uint64_t k = 0; k < p.k; k += DEPTH, now ^= 1) {
		a.template store<1, F64_PITCH>(a_tile[now]);
		b.template store<1, F64_PITCH>(b_tile[now]);
		__syncthreads();
		if (p.k - k > DEPTH) {
			a.fetch(p.k - k - DEPTH);
			b.fetch(p.k - k - DEPTH);
		}
		f64_add_tile(sums, a_tile[now], b_tile[now], me);
	}
	f64_write(t, at, sums, me);
}

} // namespace

#endif
