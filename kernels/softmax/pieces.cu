/*
 * Softmax of few rows by all multiprocessors, in two passes of which each can be cut into parts: what makes
 * room for others beside a row of any length.
 *
 *   kernel  idea                                        threads          bound
 *   pieces  blocks sum up pieces of a row; one of them  256, at most     HBM; x is read twice. Elements apart
 * take joins what they found; blocks write pieces  1024 to a row    a sector each
 *
 * Any strides, rows.cuh. A part of an op is one of the passes over some columns. It hands on a softmax_partial
 * for each row, whose peak is the largest of ±x.
 *
 * Not yet measured: its times are estimates.
 */
#include "common/launch.cuh"
#include "softmax/pieces.h"
#include "softmax/rows.cuh"

namespace
{

constexpr unsigned THREADS = SOFTMAX_PIECE_THREADS, WARPS = THREADS / 32;
constexpr uint64_t GRID_MAX = 1u << 16;

/* Each row in `splits` pieces of `chunk` columns, the last of fewer. */
struct pieces {
	uint64_t splits, chunk;
	bool goes_on;
	void *found; /* partials of each piece of each row */
	softmax_partial *of_rows;
};

template <typename F> __device__ __forceinline__ partial<F> join(const problem &p, partial<F> a, partial<F> b)
{
	raise(p, &a, larger_of(a.most, b.most));
	raise(p, &b, a.most);
	a.sum += b.sum;
	return a;
}

/* Over the block; valid in its first thread. */
template <typename F> __device__ __forceinline__ partial<F> join_block(const problem &p, partial<F> known)
{
	__shared__ F most_of[WARPS];
	__shared__ double sum_of[WARPS];
	unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;

	for (int step = 16; step > 0; step /= 2) {
		F most = __shfl_xor_sync(0xffffffff, known.most, step);
		double sum = __shfl_xor_sync(0xffffffff, known.sum, step);

		known = join(p, known, partial<F>{most, sum});
	}
	__syncthreads(); /* those of the row before are through */
	if (lane == 0) {
		most_of[warp] = known.most;
		sum_of[warp] = known.sum;
	}
	__syncthreads();
	for (unsigned w = 1; w < WARPS && threadIdx.x == 0; w++)
		known = join(p, known, partial<F>{most_of[w], sum_of[w]});
	return known;
}

/* A thread's columns of piece i, with neighbours on neighbouring ones. */
__device__ __forceinline__ share share_of(const problem &p, const pieces &q, uint64_t i)
{
	uint64_t first = i % q.splits * q.chunk + threadIdx.x, end = (i % q.splits + 1) * q.chunk;

	end = end < p.cols ? end : p.cols;
	return {first, THREADS, first < end ? (end - first + THREADS - 1) / THREADS : 0};
}

template <typename T, bool MASKED> __global__ void __launch_bounds__(THREADS) sum_pieces(problem p, pieces q)
{
	await_kernel_before();
	for (uint64_t i = blockIdx.x; i < p.rows * q.splits; i += gridDim.x) {
		row r = row_at(p, i / q.splits);
		partial<real<T>> known =
		    join_block(p, scan(p, strand_of_x<T, MASKED>(p, r, share_of(p, q, i))));

		if (threadIdx.x == 0)
			((partial<real<T>> *)q.found)[i] = known;
	}
	let_next_kernel_come();
}

/* F: in which elements were computed. */
template <typename F> __global__ void __launch_bounds__(THREADS) join_pieces(problem p, pieces q)
{
	await_kernel_before();
	for (uint64_t i = blockIdx.x; i < p.rows; i += gridDim.x) {
		const partial<F> *found = (const partial<F> *)q.found + i * q.splits;
		partial<F> known = {-INFINITY, 0};

		for (uint64_t piece = threadIdx.x; piece < q.splits; piece += THREADS)
			known = join(p, known, found[piece]);
		known = join_block(p, known);
		if (threadIdx.x == 0 && q.goes_on)
			known = join(p, partial<F>{(F)q.of_rows[i].peak, q.of_rows[i].sum}, known);
		if (threadIdx.x == 0)
			q.of_rows[i] = {(double)known.most, known.sum};
	}
	let_next_kernel_come();
}

template <typename T, bool MASKED> __global__ void __launch_bounds__(THREADS) write_pieces(problem p, pieces q)
{
	await_kernel_before();
	for (uint64_t i = blockIdx.x; i < p.rows * q.splits; i += gridDim.x) {
		row r = row_at(p, i / q.splits);
		const share mine = share_of(p, q, i);
		const softmax_partial known = q.of_rows[i / q.splits];

		write(p, strand_of_x<T, MASKED>(p, r, mine), strand_of_y<T>(p, r, mine),
		      shift_of(p, (real<T>)known.peak), (real<T>)known.sum);
	}
	let_next_kernel_come();
}

/* ---- Launches ---- */

/* Whole ops have the partials of their rows in the workspace. */
pieces pieces_of(const op_args *args, const problem &p, void *workspace)
{
	uint64_t splits = softmax_pieces_of_row(args);
	partial<float> *found = (partial<float> *)workspace; /* those of f64 are as large */
	bool is_part = args->params.softmax.pass != SOFTMAX_WHOLE;
	void *of_rows = is_part ? args->carried : found + p.rows * splits;

	return {splits, (p.cols + splits - 1) / splits, args->params.softmax.goes_on, found,
	        (softmax_partial *)of_rows};
}

dim3 grid_of(uint64_t blocks)
{
	return dim3((unsigned)(blocks < GRID_MAX ? blocks : GRID_MAX));
}

template <typename T, bool MASKED> void launch_passes(const op_args *args, const struct launch *launch)
{
	problem p = problem_of(args);
	pieces q = pieces_of(args, p, launch->workspace);
	launch_form of_pieces = {grid_of(p.rows * q.splits), dim3(THREADS)};
	cudaStream_t stream = cuda_stream(launch);

	if (args->params.softmax.pass != SOFTMAX_WRITE) {
		launch_kernel(sum_pieces<T, MASKED>, of_pieces, stream, p, q);
		launch_kernel(join_pieces<real<T>>, {grid_of(p.rows), dim3(THREADS)}, stream, p, q);
	}
	if (args->params.softmax.pass != SOFTMAX_SUM)
		launch_kernel(write_pieces<T, MASKED>, of_pieces, stream, p, q);
}

template <typename T> void launch_type(const op_args *args, const struct launch *launch)
{
	if (softmax_is_masked(args))
		launch_passes<T, true>(args, launch);
	else
		launch_passes<T, false>(args, launch);
}

} // namespace

/* A part of an op brings the memory for its rows. */
extern "C" uint64_t softmax_pieces_workspace(const op_args *args)
{
	uint64_t rows = softmax_rows(args), found = rows * softmax_pieces_of_row(args) * sizeof(partial<float>);

	switch (args->params.softmax.pass) {
	case SOFTMAX_SUM:
		return found;
	case SOFTMAX_WRITE:
		return 0;
	default:
		return found + rows * sizeof(softmax_partial);
	}
}

extern "C" CUDA_LAUNCH(softmax_pieces)
{
	switch (args->views[SOFTMAX_X].dtype) {
	case KOPS_F16:
		launch_type<__half>(args, launch);
		break;
	case KOPS_BF16:
		launch_type<__nv_bfloat16>(args, launch);
		break;
	case KOPS_F32:
		launch_type<float>(args, launch);
		break;
	case KOPS_F64:
		launch_type<double>(args, launch);
		break;
	default:
		return KOPS_E_UNSUPPORTED;
	}
	return cuda_launch_status();
}
