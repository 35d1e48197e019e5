/*
 * Transpose, y[…, j, i] = x[…, i, j].
 *
 *   rung    idea                                    tile, threads  bound              measured, H200
 *   padded  tile through shared memory, rows        32×32, 32×8    HBM 4.3 TB/s       16384²: 1701 GB/s
 *           padded to 33 so that neither phase                     (read + written)   16383×16381: 1647 GB/s
 *           conflicts on banks; each phase walks
 *           its own view along that view's finest
 *           axis
 */
#include "cuda_rows.h"

namespace
{

constexpr int TILE = 32;
constexpr int STRIPE = 8; /* rows of threads */
constexpr unsigned GRID_YZ_MAX = 65535;

/* x: rows × cols per batch. Strides in elements; y's are those of x's axes. */
struct plan {
	uint64_t rows, cols, batch[2];
	int64_t x_row, x_col, x_batch[2];
	int64_t y_row, y_col, y_batch[2];
	bool x_by_rows, y_by_cols; /* the finest axis of x is its rows; of y is x's cols */
};

/* Where lane tx of stripe row ty stands inside a tile, for a walk along cols or along rows. */
__device__ __forceinline__ void place(bool along_rows, int tx, int ty, int *row, int *col)
{
	*row = along_rows ? tx : ty;
	*col = along_rows ? ty : tx;
}

__device__ void move_tile(const plan &p, const float *x, float *y, uint64_t row0, uint64_t col0,
                          float (*tile)[TILE + 1])
{
	int row, col;

#pragma unroll
	for (int k = 0; k < TILE; k += STRIPE) {
		place(p.x_by_rows, threadIdx.x, threadIdx.y + k, &row, &col);
		if (row0 + row < p.rows && col0 + col < p.cols)
			tile[row][col] = x[(int64_t)(row0 + row) * p.x_row + (int64_t)(col0 + col) * p.x_col];
	}
	__syncthreads();
#pragma unroll
	for (int k = 0; k < TILE; k += STRIPE) {
		place(!p.y_by_cols, threadIdx.x, threadIdx.y + k, &row, &col);
		if (row0 + row < p.rows && col0 + col < p.cols)
			y[(int64_t)(row0 + row) * p.y_row + (int64_t)(col0 + col) * p.y_col] = tile[row][col];
	}
	__syncthreads();
}

__global__ void __launch_bounds__(TILE *STRIPE) padded(const float *x, float *y, plan p)
{
	__shared__ float tile[TILE][TILE + 1];

	for (uint64_t b = blockIdx.z; b < p.batch[0] * p.batch[1]; b += gridDim.z) {
		int64_t outer = (int64_t)(b / p.batch[1]), inner = (int64_t)(b % p.batch[1]);
		const float *xb = x + outer * p.x_batch[0] + inner * p.x_batch[1];
		float *yb = y + outer * p.y_batch[0] + inner * p.y_batch[1];

		for (uint64_t row0 = (uint64_t)blockIdx.y * TILE; row0 < p.rows;
		     row0 += (uint64_t)gridDim.y * TILE)
			move_tile(p, xb, yb, row0, (uint64_t)blockIdx.x * TILE, tile);
	}
}

int64_t magnitude(int64_t stride)
{
	return stride < 0 ? -stride : stride;
}

plan plan_of(const view *x, const view *y)
{
	uint32_t r = x->rank;
	plan p = {};

	p.rows = x->shape[r - 2];
	p.cols = x->shape[r - 1];
	p.x_row = x->strides[r - 2];
	p.x_col = x->strides[r - 1];
	p.y_row = y->strides[r - 1];
	p.y_col = y->strides[r - 2];
	for (uint32_t i = 0; i < 2; i++) {
		uint32_t back = 4 - i; /* axis r - 4, then r - 3 */
		bool there = r >= back;

		p.batch[i] = there ? x->shape[r - back] : 1;
		p.x_batch[i] = there ? x->strides[r - back] : 0;
		p.y_batch[i] = there ? y->strides[r - back] : 0;
	}
	p.x_by_rows = p.rows > 1 && magnitude(p.x_row) < magnitude(p.x_col);
	p.y_by_cols = p.cols > 1 && magnitude(p.y_col) < magnitude(p.y_row);
	return p;
}

unsigned grid_of(uint64_t n)
{
	return (unsigned)(n < GRID_YZ_MAX ? n : GRID_YZ_MAX);
}

} // namespace

extern "C" CUDA_LAUNCH(transpose_padded)
{
	const view *x = &args->views[0], *y = &args->views[1];
	plan p = plan_of(x, y);
	dim3 grid((unsigned)((p.cols + TILE - 1) / TILE), grid_of((p.rows + TILE - 1) / TILE),
	          grid_of(p.batch[0] * p.batch[1]));

	padded<<<grid, dim3(TILE, STRIPE), 0, (cudaStream_t)launch->stream>>>((const float *)x->data,
	                                                                      (float *)y->data, p);
	return cuda_launch_status();
}
