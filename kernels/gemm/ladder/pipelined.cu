/*
 * Gemm in two levels of blocks, pipelined: f32, C = α·A·B + β·C. Measured on an H200, resident, TFLOP/s at
 * 4096² and at 16384², K = 1024.
 *
 *   kernel     idea                               tile, threads        bound                     measured
 *   pipelined  bankfree with two tiles of each    128×128×8, 256 × 8²  issue: 83% of the slots,  45.0  46.6
 *              operand: the next one comes into                        69% for FMAs; cublas
 *              registers during the arithmetic                         49.9 and 51.4
 *              on this one, one barrier per
 *              step; any strides
 *
 * What else was tried: docs/lab/gemm.md.
 */
#include "gemm/tiles.cuh"

namespace
{

/* Where the sums of a thread are, as in bankfree.cu; but those of a warp are 16 × 32 elements in each quarter
 * of the block, for which it reads 96 words per k. For 4 × 64 it would be 136. */
__device__ __forceinline__ int row_of_thread()
{
	return (threadIdx.x / 64 * 4 + threadIdx.x % 32 / 8) * 4;
}

__device__ __forceinline__ int col_of_thread()
{
	return (threadIdx.x / 32 % 2 * 8 + threadIdx.x % 8) * 4;
}

template <bool A_ALONG_K, bool B_ALONG_K, int WIDTH>
__global__ void __launch_bounds__(THREADS, 2) pipelined(gemm_task t)
{
	__shared__ __align__(16) float a_tile[2][DEPTH * PITCH], b_tile[2][DEPTH * PITCH];
	__shared__ place kept; /* in registers it would take those of the main loop */
	const gemm_problem &p = t.p;
	place at = place_of<EDGE, 8>(t);
	loader<A_ALONG_K, WIDTH> a(batch_data(p.a, at.batch), p.a.row, p.a.col, at.row, at.rows);
	loader<B_ALONG_K, WIDTH> b(batch_data(p.b, at.batch), p.b.col, p.b.row, at.col, at.cols);
	int row = row_of_thread(), col = col_of_thread(), now = 0;
	float *c = block_of_c(t, at);
	float sums[SUMS][SUMS] = {};

	if (threadIdx.x == 0)
		kept = at;
	a.fetch(p.k);
	b.fetch(p.k);
	a.template store<1, PITCH>(a_tile[0]);
	b.template store<1, PITCH>(b_tile[0]);
	__syncthreads();
	for (uint64_t k = 0; k < p.k; k += DEPTH, now ^= 1) {
		bool more = p.k - k > DEPTH;
		if (more) {
			a.fetch(p.k - k - DEPTH);
			b.fetch(p.k - k - DEPTH);
		}
#pragma unroll
		for (int i = 0; i < DEPTH; i++)
			add_line(sums, a_tile[now] + i * PITCH + row, b_tile[now] + i * PITCH + col);
		if (more) {
			a.template store<1, PITCH>(a_tile[now ^ 1]);
			b.template store<1, PITCH>(b_tile[now ^ 1]);
			__syncthreads();
		}
	}
	write_sums<HALF>(t, kept, c, row, col, sums);
}

} // namespace

extern "C" CUDA_LAUNCH(gemm_pipelined)
{
	static void (*const kernels[8])(gemm_task) = KERNELS(pipelined);

	return launch_for(kernels, args, launch);
}
