/*
 * Gemm in two levels of blocks, without bank conflicts: f32, C = α·A·B + β·C. Measured on an H200, resident,
 * TFLOP/s at 4096² and at 16384², K = 1024.
 *
 *   kernel    idea                               tile, threads        bound                     measured
 *   bankfree  A's tile transposed in shared      128×128×8, 256 × 8²  latency: between a tile's 38.1  38.4
 *             memory, 8 × 8 sums per thread in                        fetch and the barrier
 *             4-wide halves: 128-bit reads that                       after it no warp of the
 *             do not conflict; any strides                            block computes; FMA units
 *                                                                     60%
 *
 * Of blocked's conflicts a two-thousandth is left.
 */
#include "gemm/tiles.cuh"

namespace
{

/* Both tiles have one row per k. A thread's sums are 4 rows in each half of the block and 4 columns in each
 * half: neighbouring threads read neighbouring float4s. */
template <bool A_ALONG_K, bool B_ALONG_K, int WIDTH>
__global__ void __launch_bounds__(THREADS, 2) bankfree(gemm_task t)
{
	__shared__ __align__(16) float a_tile[DEPTH * PITCH], b_tile[DEPTH * PITCH];
	const gemm_problem &p = t.p;
	place at = place_of<EDGE, 1>(t);
	loader<A_ALONG_K, WIDTH> a(batch_data(p.a, at.batch), p.a.row, p.a.col, at.row, at.rows);
	loader<B_ALONG_K, WIDTH> b(batch_data(p.b, at.batch), p.b.col, p.b.row, at.col, at.cols);
	int row = threadIdx.x / 16 * 4, col = threadIdx.x % 16 * 4;
	float *c = block_of_c(t, at);
	float sums[SUMS][SUMS] = {};

	for (uint64_t k = 0; k < p.k; k += DEPTH) {
		a.fetch(p.k - k);
		b.fetch(p.k - k);
		a.template store<1, PITCH>(a_tile);
		b.template store<1, PITCH>(b_tile);
		__syncthreads();
#pragma unroll
		for (int i = 0; i < DEPTH; i++)
			add_line(sums, a_tile + i * PITCH + row, b_tile + i * PITCH + col);
		__syncthreads();
	}
	write_sums<HALF>(t, at, c, row, col, sums);
}

} // namespace

extern "C" CUDA_LAUNCH(gemm_bankfree)
{
	static void (*const kernels[8])(gemm_task) = KERNELS(bankfree);

	return launch_for(kernels, args, launch);
}
