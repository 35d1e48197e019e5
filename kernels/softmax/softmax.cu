/*
 * Softmax over the last axis: y = exp(s·x − m) / Σ exp(s·x − m), m = max s·x; or its logarithm.
 *
 * Threads per row: blockreduce 128 up to 2048 columns, 256 up to 8192, else 1024; coalesced and online too, but
 * a warp for rows of up to 2 KB. All types, any strides, elements loaded eight at a time (rows.cuh).
 *
 *   kernel       idea                                       bound
 *   naive        one thread per element, each finding its   instructions: 2 · columns visits an element,
 *                row's max and sum anew                     88 % of the issue slots taken
 *   blockreduce  a block per row, each thread a contiguous  first-level cache: a load of a warp touches 32
 *                chunk; max, then sum, by a tree in shared  sectors instead of 4; 78–90 % of its rate
 *                memory; then the writing pass
 *   coalesced    the same passes, threads side by side on   HBM, 4.2 TB/s, while rows stay in the caches from
 *                elements side by side, warp shuffles       pass to pass; else four moves for two: 2.1 TB/s
 *   online       max and sum in one pass, the sum rescaled  the same; else three moves for two: 2.8 TB/s
 *                when the max grows; then as coalesced
 *
 *   measured, H200, GB/s (read + written once; no launch finds its data in a cache):
 *                65536×1024  16384×4096  8192×32768  1024×1048576  f16 16384×4096
 *   naive              11.3         2.8        0.36                          1.4
 *   blockreduce        1484         762         403           281            488
 *   coalesced          3077        3114        2604          1702           1807
 *   online             3166        3448        2955          2528           1968
 *   device copy        4147        4159        4226          4261           4065
 *
 * What keeps the last two below HBM: docs/lab/softmax.md.
 */
#include "common/launch.cuh"
#include "softmax/rows.cuh"

namespace
{

typedef void (*row_kernel)(problem);

template <typename F> __device__ __forceinline__ F larger(F a, F b)
{
	return larger_of(a, b);
}

template <typename F> __device__ __forceinline__ F plus(F a, F b)
{
	return a + b;
}

/* ---- naive ---- */

constexpr int NAIVE_THREADS = 256;

template <typename T> __global__ void __launch_bounds__(NAIVE_THREADS) naive(problem p)
{
	uint64_t i = (uint64_t)blockIdx.x * NAIVE_THREADS + threadIdx.x;

	for (; i < p.rows * p.cols; i += (uint64_t)gridDim.x * NAIVE_THREADS) {
		row r = row_at(p, i / p.cols);
		const share all = {0, 1, p.cols}, mine = {i % p.cols, 1, 1};
		source<T, false> x = strand_of_x<T>(p, r, all);
		real<T> shift = shift_of(p, find_most(p, x));
		real<T> sum = sum_up(p, x, shift);

		write(p, strand_of_x<T>(p, r, mine), strand_of_y<T>(p, r, mine), shift, sum);
	}
}

/* ---- blockreduce ---- */

/* The combination of v over the block, given to each thread: halves of the block, then quarters, … */
template <int THREADS, typename F, F (*combine)(F, F)> __device__ __forceinline__ F reduce_tree(F v)
{
	__shared__ F of_thread[THREADS];
	unsigned me = threadIdx.x;

	__syncthreads(); /* of_thread may still be read from the last time */
	of_thread[me] = v;
	for (unsigned n = THREADS / 2; n > 0; n /= 2) {
		__syncthreads();
		if (me < n)
			of_thread[me] = combine(of_thread[me], of_thread[me + n]);
	}
	__syncthreads();
	return of_thread[0];
}

template <int THREADS, typename T> __global__ void __launch_bounds__(THREADS) blockreduce(problem p)
{
	uint64_t chunk = (p.cols + THREADS - 1) / THREADS, first = threadIdx.x * chunk;
	uint64_t left = first < p.cols ? p.cols - first : 0;
	const share mine = {first, 1, left < chunk ? left : chunk};

	for (uint64_t i = blockIdx.x; i < p.rows; i += gridDim.x) {
		row r = row_at(p, i);
		source<T, false> x = strand_of_x<T>(p, r, mine);
		real<T> shift = shift_of(p, reduce_tree<THREADS, real<T>, larger<real<T>>>(find_most(p, x)));
		real<T> sum = reduce_tree<THREADS, real<T>, plus<real<T>>>(sum_up(p, x, shift));

		write(p, x, strand_of_y<T>(p, r, mine), shift, sum);
	}
}

/* ---- coalesced ---- */

/* The combination of v over the THREADS threads of a row, given to each of them. */
template <int THREADS, typename F, F (*combine)(F, F)> __device__ __forceinline__ F reduce(F v)
{
	for (int lane = 16; lane > 0; lane /= 2)
		v = combine(v, __shfl_xor_sync(0xffffffff, v, lane));
	if (THREADS == 32)
		return v;

	__shared__ F of_warp[32];
	__syncthreads(); /* of_warp may still be read from the last time */
	if (threadIdx.x % 32 == 0)
		of_warp[threadIdx.x / 32] = v;
	__syncthreads();
	v = of_warp[threadIdx.x % (THREADS / 32)];
	for (int lane = THREADS / 64; lane > 0; lane /= 2)
		v = combine(v, __shfl_xor_sync(0xffffffff, v, lane));
	return v;
}

/* Rows of a warp come several to a block. */
constexpr int WARPS = 4;

constexpr int block_of(int threads)
{
	return threads == 32 ? 32 * WARPS : threads;
}

template <int THREADS> constexpr uint64_t ROWS_OF_BLOCK = block_of(THREADS) / THREADS;

template <int THREADS> __device__ __forceinline__ uint64_t first_row()
{
	return (uint64_t)blockIdx.x * ROWS_OF_BLOCK<THREADS> + threadIdx.x / THREADS;
}

template <int THREADS> __device__ __forceinline__ uint64_t row_step()
{
	return (uint64_t)gridDim.x * ROWS_OF_BLOCK<THREADS>;
}

/* Side by side with the other threads of the row. */
template <int THREADS> __device__ __forceinline__ share interleaved(const problem &p)
{
	uint64_t me = threadIdx.x % THREADS;

	return {me, THREADS, me < p.cols ? (p.cols - me + THREADS - 1) / THREADS : 0};
}

template <int THREADS, typename T> __global__ void __launch_bounds__(block_of(THREADS)) coalesced(problem p)
{
	const share mine = interleaved<THREADS>(p);

	for (uint64_t i = first_row<THREADS>(); i < p.rows; i += row_step<THREADS>()) {
		row r = row_at(p, i);
		source<T, false> x = strand_of_x<T>(p, r, mine);
		real<T> shift = shift_of(p, reduce<THREADS, real<T>, larger<real<T>>>(find_most(p, x)));
		real<T> sum = reduce<THREADS, real<T>, plus<real<T>>>(sum_up(p, x, shift));

		write(p, x, strand_of_y<T>(p, r, mine), shift, sum);
	}
}

/* ---- online ---- */

template <int THREADS, typename T, bool MASKED>
__global__ void __launch_bounds__(block_of(THREADS)) online(problem p)
{
	const share mine = interleaved<THREADS>(p);

	for (uint64_t i = first_row<THREADS>(); i < p.rows; i += row_step<THREADS>()) {
		row r = row_at(p, i);
		source<T, MASKED> x = strand_of_x<T, MASKED>(p, r, mine);
		partial<real<T>> known = scan(p, x);

		raise(p, &known, reduce<THREADS, real<T>, larger<real<T>>>(known.most));
		real<T> sum = reduce<THREADS, real<T>, plus<real<T>>>((real<T>)known.sum);
		write(p, x, strand_of_y<T>(p, r, mine), shift_of(p, known.most), sum);
	}
}

/* ---- Launches ---- */

constexpr uint64_t GRID_MAX = 1u << 16; /* blocks, plenty for any GPU; they then take further rows */

void launch_blocks(row_kernel kernel, const problem &p, uint64_t blocks, dim3 threads, cudaStream_t stream)
{
	launch_form form = {dim3((unsigned)(blocks < GRID_MAX ? blocks : GRID_MAX)), threads};

	form.early = false; /* the kernels do not wait */
	launch_kernel(kernel, form, stream, p);
}

/* Its functions for one type, by threads per row. */
struct widths {
	row_kernel of_32, of_128, of_256, of_1024;
};

/*
 * The longest rows of 32, 128 and 256 threads. More threads to a row are fewer rows under way: with all the
 * warps of an SM on rows of their own, rows of 4 KB did not stay in its cache from one pass to the next.
 */
constexpr uint64_t WARP_BYTES = 2048, COLS_OF_128 = 2048, COLS_OF_256 = 8192;

void launch_rows(const op_args *args, const widths &kernels, cudaStream_t stream)
{
	problem p = problem_of(args);

	if (kernels.of_32 && p.cols * dtype_size(args->views[SOFTMAX_X].dtype) <= WARP_BYTES)
		launch_blocks(kernels.of_32, p, (p.rows + WARPS - 1) / WARPS, block_of(32), stream);
	else if (p.cols <= COLS_OF_128)
		launch_blocks(kernels.of_128, p, p.rows, 128, stream);
	else if (p.cols <= COLS_OF_256)
		launch_blocks(kernels.of_256, p, p.rows, 256, stream);
	else
		launch_blocks(kernels.of_1024, p, p.rows, 1024, stream);
}

/* Of four instances of one thing, for the types that softmax takes. */
template <typename Instance>
Instance by_dtype(const op_args *args, Instance f32, Instance f64, Instance f16, Instance bf16)
{
	switch (args->views[SOFTMAX_X].dtype) {
	case KOPS_F64:
		return f64;
	case KOPS_F16:
		return f16;
	case KOPS_BF16:
		return bf16;
	default:
		return f32;
	}
}

template <typename T> widths widths_of_blockreduce()
{
	return {NULL, blockreduce<128, T>, blockreduce<256, T>, blockreduce<1024, T>};
}

template <typename T> widths widths_of_coalesced()
{
	return {coalesced<32, T>, coalesced<128, T>, coalesced<256, T>, coalesced<1024, T>};
}

template <typename T, bool MASKED> widths widths_of_online()
{
	return {online<32, T, MASKED>, online<128, T, MASKED>, online<256, T, MASKED>, online<1024, T, MASKED>};
}

template <typename T> widths widths_of_plain()
{
	return widths_of_online<T, false>();
}

template <typename T> widths widths_of_masked()
{
	return widths_of_online<T, true>();
}

/* What f<T>() gives for the type of x. */
#define OF_DTYPE(f) by_dtype(args, f<float>(), f<double>(), f<__half>(), f<__nv_bfloat16>())

} // namespace

extern "C" CUDA_LAUNCH(softmax_naive)
{
	problem p = problem_of(args);
	uint64_t blocks = (p.rows * p.cols + NAIVE_THREADS - 1) / NAIVE_THREADS;
	row_kernel kernel =
	    by_dtype<row_kernel>(args, naive<float>, naive<double>, naive<__half>, naive<__nv_bfloat16>);

	launch_blocks(kernel, p, blocks, NAIVE_THREADS, cuda_stream(launch));
	return cuda_launch_status();
}

extern "C" CUDA_LAUNCH(softmax_blockreduce)
{
	launch_rows(args, OF_DTYPE(widths_of_blockreduce), cuda_stream(launch));
	return cuda_launch_status();
}

extern "C" CUDA_LAUNCH(softmax_coalesced)
{
	launch_rows(args, OF_DTYPE(widths_of_coalesced), cuda_stream(launch));
	return cuda_launch_status();
}

extern "C" CUDA_LAUNCH(softmax_online)
{
	launch_rows(args, softmax_is_masked(args) ? OF_DTYPE(widths_of_masked) : OF_DTYPE(widths_of_plain),
	            cuda_stream(launch));
	return cuda_launch_status();
}
