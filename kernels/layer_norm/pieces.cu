/*
 * layer_norm and rms_norm of any rows, in two passes of which each can be cut into parts.
 *
 *   kernel  idea                                         threads              bound
 *   pieces  blocks measure pieces of a row; one of them  256, as many blocks  HBM; x is read twice. Elements
 *           joins what they found; blocks write pieces   to a row as help     apart take a sector each
 *
 * A part of an op is one of the passes over some columns. It hands on a layer_norm_partial for each row.
 */
#include "layer_norm/pieces.h"
#include "layer_norm/rows.cuh"

namespace
{

constexpr unsigned THREADS = LAYER_NORM_PIECE_THREADS, WARPS = THREADS / 32;
constexpr int GROUP = 8; /* elements of a thread that are loaded together */

/* Each row in `splits` pieces of `chunk` columns, the last of fewer. */
struct pieces {
	uint64_t splits, chunk;
	bool goes_on;
	layer_norm_partial *found; /* of each piece of each row */
	layer_norm_partial *of_rows;
};

__device__ __forceinline__ layer_norm_partial join_lanes(layer_norm_partial known)
{
	for (int step = 16; step > 0; step /= 2) {
		layer_norm_partial other = {__shfl_xor_sync(0xffffffff, known.count, step),
		                            __shfl_xor_sync(0xffffffff, known.mean, step),
		                            __shfl_xor_sync(0xffffffff, known.squares, step)};

		known = layer_norm_join(known, other);
	}
	return known;
}

/* Over the block; valid in its first thread. */
__device__ __forceinline__ layer_norm_partial join_block(layer_norm_partial known)
{
	__shared__ layer_norm_partial of_warp[WARPS];
	unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;

	known = join_lanes(known);
	__syncthreads(); /* those of the row before are through */
	if (lane == 0)
		of_warp[warp] = known;
	__syncthreads();
	for (unsigned w = 1; w < WARPS && threadIdx.x == 0; w++)
		known = layer_norm_join(known, of_warp[w]);
	return known;
}

/* Columns of piece i, of all threads. */
struct span {
	uint64_t first, end;
};

__device__ __forceinline__ span span_of(const problem &p, const pieces &q, uint64_t i)
{
	uint64_t first = i % q.splits * q.chunk, end = first + q.chunk;

	return {first, end < p.cols ? end : p.cols};
}

/* A row's elements in each view; NULL where there is none. */
template <typename T> struct row_of {
	const T *x, *residual;
	T *y, *sum;
};

template <typename T> __device__ __forceinline__ row_of<T> row_at(const problem &p, uint64_t i)
{
	return {(const T *)p.x + at_row(p, p.x_batch, i),
	        p.residual ? (const T *)p.residual + at_row(p, p.residual_batch, i) : NULL,
	        (T *)p.y + at_row(p, p.y_batch, i), p.sum ? (T *)p.sum + at_row(p, p.sum_batch, i) : NULL};
}

template <typename T>
__device__ __forceinline__ T element(const problem &p, const row_of<T> &row, int64_t column)
{
	T x = row.x[column * p.x_col];

	return row.residual ? sum_of(x, row.residual[column * p.residual_col]) : x;
}

/* n elements from a column on, THREADS apart. */
template <typename T>
__device__ __forceinline__ layer_norm_partial measure_group(const problem &p, const row_of<T> &row,
                                                            uint64_t first, int n)
{
	double v[GROUP], sum = 0, squares = 0;

#pragma unroll
	for (int k = 0; k < GROUP; k++)
		v[k] = k < n ? (double)(real<T>)element(p, row, (int64_t)(first + k * THREADS)) : 0;
#pragma unroll
	for (int k = 0; k < GROUP; k++)
		sum += v[k];
	double mean = p.is_rms ? 0 : sum / n;
#pragma unroll
	for (int k = 0; k < GROUP; k++)
		squares += k < n ? (v[k] - mean) * (v[k] - mean) : 0;
	return {(double)n, mean, squares};
}

/* Neighbouring threads on neighbouring columns. */
template <typename T>
__device__ __forceinline__ layer_norm_partial measure_span(const problem &p, const row_of<T> &row,
                                                           const span &s)
{
	layer_norm_partial known = {0, 0, 0};

	for (uint64_t i = s.first + threadIdx.x; i < s.end; i += GROUP * THREADS) {
		uint64_t left = (s.end - i + THREADS - 1) / THREADS;

		known = layer_norm_join(known, measure_group(p, row, i, left < GROUP ? (int)left : GROUP));
	}
	return known;
}

template <typename T>
__global__ void __launch_bounds__(THREADS) measure_pieces(const __grid_constant__ problem p, pieces q)
{
	await_kernel_before();
	for (uint64_t i = blockIdx.x; i < p.rows * q.splits; i += gridDim.x) {
		layer_norm_partial known =
		    join_block(measure_span(p, row_at<T>(p, i / q.splits), span_of(p, q, i)));

		if (threadIdx.x == 0)
			q.found[i] = known;
	}
	let_next_kernel_come();
}

__global__ void __launch_bounds__(THREADS) join_pieces(const __grid_constant__ problem p, pieces q)
{
	await_kernel_before();
	for (uint64_t i = blockIdx.x; i < p.rows; i += gridDim.x) {
		layer_norm_partial known = {0, 0, 0};

		for (uint64_t piece = threadIdx.x; piece < q.splits; piece += THREADS)
			known = layer_norm_join(known, q.found[i * q.splits + piece]);
		known = join_block(known);
		if (threadIdx.x == 0)
			q.of_rows[i] = q.goes_on ? layer_norm_join(q.of_rows[i], known) : known;
	}
	let_next_kernel_come();
}

template <typename T>
__device__ __forceinline__ void write_span(const problem &p, const row_of<T> &row, const span &s,
                                           const layer_norm_partial &known)
{
	double inverse = 1 / sqrt(known.squares / known.count + p.eps);

#pragma unroll 4
	for (uint64_t c = s.first + threadIdx.x; c < s.end; c += THREADS) {
		int64_t at = (int64_t)c;
		real<T> weight = p.weight ? (real<T>)((const T *)p.weight)[at * p.weight_col] : (real<T>)1;
		real<T> bias = p.bias ? (real<T>)((const T *)p.bias)[at * p.bias_col] : (real<T>)0;
		T x = element(p, row, at);
		double apart = (double)(real<T>)x - known.mean;

		row.y[at * p.y_col] = (T)((real<T>)(apart * inverse) * weight + bias);
		if (row.sum)
			row.sum[at * p.sum_col] = x;
	}
}

template <typename T>
__global__ void __launch_bounds__(THREADS) write_pieces(const __grid_constant__ problem p, pieces q)
{
	await_kernel_before();
	for (uint64_t i = blockIdx.x; i < p.rows * q.splits; i += gridDim.x)
		write_span(p, row_at<T>(p, i / q.splits), span_of(p, q, i), q.of_rows[i / q.splits]);
	let_next_kernel_come();
}

/* Where there are rows enough for all multiprocessors: nothing is kept outside the block. */
template <typename T> __global__ void __launch_bounds__(THREADS) norm_rows(const __grid_constant__ problem p)
{
	__shared__ layer_norm_partial of_row;
	const span all = {0, p.cols};

	await_kernel_before();
	for (uint64_t i = blockIdx.x; i < p.rows; i += gridDim.x) {
		const row_of<T> row = row_at<T>(p, i);
		layer_norm_partial known = join_block(measure_span(p, row, all));

		if (threadIdx.x == 0)
			of_row = known;
		__syncthreads();
		write_span(p, row, all, of_row);
	}
	let_next_kernel_come();
}

/* ---- Launches ---- */

/* Whole ops have the partials of their rows in the workspace. */
pieces pieces_of(const op_args *args, const problem &p, void *workspace)
{
	uint64_t splits = layer_norm_pieces_of_row(args);
	layer_norm_partial *found = (layer_norm_partial *)workspace;
	void *of_rows = layer_norm_pass(args) == LAYER_NORM_WHOLE ? found + p.rows * splits : args->carried;

	return {splits, (p.cols + splits - 1) / splits, layer_norm_goes_on(args), found,
	        (layer_norm_partial *)of_rows};
}

template <typename T> void launch_passes(const op_args *args, const struct launch *launch)
{
	problem p = problem_of(args);
	pieces q = pieces_of(args, p, launch->workspace);
	launch_form of_pieces = {grid_of(p.rows * q.splits), dim3(THREADS)};
	cudaStream_t stream = cuda_stream(launch);

	if (layer_norm_pieces_are_rows(args)) {
		launch_kernel(norm_rows<T>, {grid_of(p.rows), dim3(THREADS)}, stream, p);
		return;
	}
	if (layer_norm_pass(args) != LAYER_NORM_WRITE) {
		launch_kernel(measure_pieces<T>, of_pieces, stream, p, q);
		launch_kernel(join_pieces, {grid_of(p.rows), dim3(THREADS)}, stream, p, q);
	}
	if (layer_norm_pass(args) != LAYER_NORM_MEASURE)
		launch_kernel(write_pieces<T>, of_pieces, stream, p, q);
}

} // namespace

extern "C" CUDA_LAUNCH(layer_norm_pieces)
{
	switch (args->views[LAYER_NORM_X].dtype) {
	case KOPS_F64:
		launch_passes<double>(args, launch);
		break;
	case KOPS_F16:
		launch_passes<__half>(args, launch);
		break;
	case KOPS_BF16:
		launch_passes<__nv_bfloat16>(args, launch);
		break;
	default:
		launch_passes<float>(args, launch);
	}
	return cuda_launch_status();
}
