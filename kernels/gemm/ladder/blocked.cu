/*
 * Gemm in two levels of blocks: f32, C = α·A·B + β·C. Measured on an H200, resident, TFLOP/s at 4096² and at
 * 16384², K = 1024.
 *
 *   kernel   idea                               tile, threads        bound                      measured
 *   blocked  tiles of A and B in shared memory  128×128×8, 256 × 8²  67 million bank conflicts  30.1  30.8
 *            as they are drawn, 8 × 8 sums per                       at 4096²; FMA units 46%
 *            thread in registers; any strides
 *
 * A thread's 8 columns of B are two reads of 128 bits, the next thread's lie 32 bytes further: of eight threads
 * that read at once, two each meet in a bank. Of A the compiler reads 4 k's at once in each of the 8 rows, and
 * the two rows of threads in a warp meet too.
 */
#include "gemm/tiles.cuh"

namespace
{

/* Both tiles lie as they are drawn: EDGE rows of DEPTH, DEPTH rows of EDGE. A thread's sums are 8 neighbouring
 * rows and columns. */
template <bool A_ALONG_K, bool B_ALONG_K, int WIDTH>
__global__ void __launch_bounds__(THREADS, 2) blocked(gemm_task t)
{
	__shared__ __align__(16) float a_tile[EDGE * DEPTH], b_tile[DEPTH * EDGE];
	const gemm_problem &p = t.p;
	place at = place_of<EDGE, 1>(t);
	loader<A_ALONG_K, WIDTH> a(batch_data(p.a, at.batch), p.a.row, p.a.col, at.row, at.rows);
	loader<B_ALONG_K, WIDTH> b(batch_data(p.b, at.batch), p.b.col, p.b.row, at.col, at.cols);
	int row = threadIdx.x / 16 * SUMS, col = threadIdx.x % 16 * SUMS;
	float *c = block_of_c(t, at);
	float sums[SUMS][SUMS] = {};

	for (uint64_t k = 0; k < p.k; k += DEPTH) {
		a.fetch(p.k - k);
		b.fetch(p.k - k);
		a.template store<DEPTH, 1>(a_tile);
		b.template store<1, EDGE>(b_tile);
		__syncthreads();
#pragma unroll
		for (int i = 0; i < DEPTH; i++) {
			float a_part[SUMS], b_part[SUMS];
#pragma unroll
			for (int j = 0; j < SUMS; j++) {
				a_part[j] = a_tile[(row + j) * DEPTH + i];
				b_part[j] = b_tile[i * EDGE + col + j];
			}
			add_products(sums, a_part, b_part);
		}
		__syncthreads();
	}
	write_sums<4>(t, at, c, row, col, sums);
}

} // namespace

extern "C" CUDA_LAUNCH(gemm_blocked)
{
	static void (*const kernels[8])(gemm_task) = KERNELS(blocked);

	return launch_for(kernels, args, launch);
}
