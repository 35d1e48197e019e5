/*
 * Gemm in square tiles, as in CUDA's matrixMul sample: f32, C = α·A·B + β·C. Measured on an H200, resident,
 * TFLOP/s at 4096² and at 16384², K = 1024.
 *
 *   kernel  idea                            tile, threads  bound                               measured
 *   tile16  square tiles of A and of B in   16×16, 16×16   reads of shared memory, 1.25 per    8.3  8.2
 *           shared memory, one element of                  FMA: 82% of their rate, FMA units
 *           C per thread; any strides                      16%
 *   tile32  the same, half the global       32×32, 32×32   the same, 86%                       9.1  8.8
 *           reads per FMA
 *
 * Where A by columns or B by rows would be the lines in memory, a warp's reads are not along lines: 4.4 to 5.8.
 * The blocks of C go in bands of 8 rows of blocks: row by row, tile32 falls to 8.0 at 16384², where B alone is
 * larger than L2.
 */
#include "gemm/tiles.cuh"

namespace
{

constexpr int BAND = 8;

/*
 * All threads of a block bring one element of A and one of B, then each adds up the products for its own
 * element of C. The sum of one tile is formed apart from the whole: a long sum of equal terms rounds the same
 * way every time.
 */
template <int BLOCK>
__global__ void __launch_bounds__(BLOCK *BLOCK, CUDA_RESIDENT_THREADS / (BLOCK * BLOCK)) tile(gemm_task t)
{
	__shared__ float a_tile[BLOCK][BLOCK], b_tile[BLOCK][BLOCK];
	__shared__ place kept; /* in registers it would take those of the main loop */
	const gemm_problem &p = t.p;
	place at = place_of<BLOCK, BAND>(t);
	int x = threadIdx.x, y = threadIdx.y;
	const float *a = batch_data(p.a, at.batch) + ((int64_t)at.row + y) * p.a.row + x * p.a.col;
	const float *b = batch_data(p.b, at.batch) + ((int64_t)at.col + x) * p.b.col + y * p.b.row;
	float *c = block_of_c(t, at) + y * p.c.row + x * p.c.col;
	float sum = 0;

	if (x == 0 && y == 0)
		kept = at;
	__syncthreads();
	for (uint64_t k = 0; k < p.k; k += BLOCK) {
		float piece = 0;

		a_tile[y][x] = y < at.rows && k + x < p.k ? *a : 0;
		b_tile[y][x] = x < at.cols && k + y < p.k ? *b : 0;
		__syncthreads();
#pragma unroll
		for (int i = 0; i < BLOCK; i++)
			piece = fmaf(a_tile[y][i], b_tile[i][x], piece);
		sum += piece;
		__syncthreads();
		a += BLOCK * p.a.col;
		b += BLOCK * p.b.row;
	}
	if (y < kept.rows && x < kept.cols)
		t.to_c.store<float>(c, sum, {kept.batch, (int64_t)kept.row + y, (int64_t)kept.col + x});
}

} // namespace

extern "C" CUDA_LAUNCH(gemm_tile16)
{
	return launch_blocks(tile<16>, gemm_task_of(args), 16, dim3(16, 16), cuda_stream(launch));
}

extern "C" CUDA_LAUNCH(gemm_tile32)
{
	return launch_blocks(tile<32>, gemm_task_of(args), 32, dim3(32, 32), cuda_stream(launch));
}
