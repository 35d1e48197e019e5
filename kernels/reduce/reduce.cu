/*
 * reduce on GPUs: sums, largest and means over the last axis, read once at the memory's rate.
 *
 *   kernel   idea                                                               threads  bound
 *   rows     elements side by side. Rows of up to 512 bytes: as many threads    256      HBM
 *            as a row has vectors of 16 bytes, four rows under way at a time;
 *            longer ones: a warp or a block for each, four vectors under way.
 *            Few long rows are cut into pieces, added up by a second kernel
 *   strided  any strides: a warp's lanes on 32 rows, eight warps along them;    256      HBM where rows are
 *            cut likewise                                                                side by side
 *
 * A thread adds some 100 elements at most in f32, then in f64: millions of equal terms would all round the same way.
 * Partial sums are joined in a fixed order, so that results repeat bit for bit.
 */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>
#include <string.h>

#include "common/launch.cuh"
#include "reduce/split.h"

namespace
{

constexpr unsigned THREADS = REDUCE_THREADS;
constexpr unsigned WARP = 32;
constexpr unsigned WARPS = THREADS / WARP;
constexpr uint64_t GRID_MAX = 1u << 20;
constexpr int UNROLL = 4;
constexpr int FLUSH = 4; /* unrolled steps between f32 and f64 */
constexpr int DEEP = 8;  /* elements of a row under way, of strided */

struct problem {
	const void *x;
	void *y;
	uint64_t rows, cols, batch[3];
	int64_t x_batch[3], y_batch[3], x_col;
	double scale;
	bool goes_on;
	uint64_t chunk;
	uint32_t splits;
	double *partials; /* of each row and piece, where there are more than one */
};

/* ---- What is added up ---- */

/* MAX: the largest, or NaN if there is one. */
template <bool MAX> struct total {
	static __device__ __forceinline__ float nothing()
	{
		return MAX ? -INFINITY : 0.0f;
	}
	template <typename F> static __device__ __forceinline__ F join(F a, F b)
	{
		if constexpr (MAX)
			return a > b || a != a ? a : b;
		else
			return a + b;
	}
};

/* 16 bytes of elements. */
template <bool MAX, typename T> __device__ __forceinline__ float join_vector(float sum, uint4 v)
{
	constexpr int N = sizeof(uint4) / sizeof(T);
	T t[N];
	float part[N];

	memcpy(t, &v, sizeof v);
#pragma unroll
	for (int i = 0; i < N; i++)
		part[i] = (float)t[i];
#pragma unroll
	for (int step = N / 2; step > 0; step /= 2)
#pragma unroll
		for (int i = 0; i < step; i++)
			part[i] = total<MAX>::join(part[i], part[i + step]);
	return total<MAX>::join(sum, part[0]);
}

template <bool MAX, unsigned GROUP> __device__ __forceinline__ double join_lanes(double result)
{
#pragma unroll
	for (unsigned step = GROUP / 2; step > 0; step /= 2)
		result = total<MAX>::join(result, __shfl_xor_sync(0xffffffff, result, step));
	return result;
}

/* Of the whole block; valid in its first warp. */
template <bool MAX> __device__ __forceinline__ double join_block(double result)
{
	__shared__ double of_warps[WARPS];
	unsigned lane = threadIdx.x % WARP;

	result = join_lanes<MAX, WARP>(result);
	__syncthreads(); /* the piece before is through with of_warps */
	if (lane == 0)
		of_warps[threadIdx.x / WARP] = result;
	__syncthreads();
	return join_lanes<MAX, WARP>(lane < WARPS ? of_warps[lane] : (double)total<MAX>::nothing());
}

/* ---- Where rows are ---- */

__device__ __forceinline__ int64_t at_row(const problem &p, const int64_t (&strides)[3], uint64_t i)
{
	if (i < p.batch[2])
		return (int64_t)i * strides[2];

	uint64_t rest = i / p.batch[2];
	return (int64_t)(i % p.batch[2]) * strides[2] + (int64_t)(rest % p.batch[1]) * strides[1] +
	       (int64_t)(rest / p.batch[1]) * strides[0];
}

template <bool MAX, typename T>
__device__ __forceinline__ void store_row(const problem &p, uint64_t row, double result)
{
	T *y = (T *)p.y + at_row(p, p.y_batch, row);

	result *= p.scale;
	if (p.goes_on)
		result = total<MAX>::join((double)(float)*y, result);
	*y = (T)(float)result;
}

template <bool MAX, typename T>
__device__ __forceinline__ void store_piece(const problem &p, uint64_t row, uint64_t part, double result)
{
	if (p.splits == 1)
		store_row<MAX, T>(p, row, result);
	else
		p.partials[row * p.splits + part] = result;
}

/* ---- rows: short ones ---- */

/* Rows of GROUP / 2 < vectors <= GROUP whole vectors of 16 bytes, each at a multiple of that. */
template <bool MAX, typename T, unsigned GROUP>
__global__ void __launch_bounds__(THREADS) reduce_short(problem p)
{
	constexpr unsigned N = sizeof(uint4) / sizeof(T);
	unsigned lane = threadIdx.x % GROUP;
	bool mine = lane < p.cols / N;
	uint64_t step = (uint64_t)gridDim.x * (THREADS / GROUP);
	uint64_t first = (uint64_t)blockIdx.x * (THREADS / GROUP) + threadIdx.x / GROUP;

	await_kernel_before();
	/* All threads of a warp come along to the end, for join_lanes(). */
	for (uint64_t base = 0; base < p.rows; base += step * UNROLL) {
		float sums[UNROLL];
#pragma unroll
		for (int u = 0; u < UNROLL; u++) {
			uint64_t row = base + u * step + first;
			sums[u] = total<MAX>::nothing();
			if (mine && row < p.rows)
				sums[u] = join_vector<MAX, T>(
				    sums[u],
				    ((const uint4 *)((const T *)p.x + at_row(p, p.x_batch, row)))[lane]);
		}
#pragma unroll
		for (int u = 0; u < UNROLL; u++) {
			uint64_t row = base + u * step + first;
			double result = join_lanes<MAX, GROUP>((double)sums[u]);
			if (lane == 0 && row < p.rows)
				store_row<MAX, T>(p, row, result);
		}
	}
	let_next_kernel_come();
}

/* ---- rows: long ones, and any that do not begin at vectors ---- */

/* n elements side by side, by GROUP threads of which this is one: its share. */
template <bool MAX, typename T, unsigned GROUP>
__device__ __forceinline__ double reduce_run(const T *x, uint64_t n, unsigned thread)
{
	constexpr uint64_t N = sizeof(uint4) / sizeof(T);
	uint64_t head = (sizeof(uint4) - (uintptr_t)x % sizeof(uint4)) % sizeof(uint4) / sizeof(T);
	double result = total<MAX>::nothing();
	float sum = total<MAX>::nothing();

	head = head < n ? head : n;
	const uint4 *vectors = (const uint4 *)(x + head);
	uint64_t n_vectors = (n - head) / N, i = thread;
	const T *tail = x + head + n_vectors * N;
	unsigned n_tail = (unsigned)(n - head - n_vectors * N);

	while (i + (UNROLL - 1) * GROUP < n_vectors) {
		for (int flush = 0; flush < FLUSH && i + (UNROLL - 1) * GROUP < n_vectors; flush++) {
			uint4 v[UNROLL];
#pragma unroll
			for (int u = 0; u < UNROLL; u++)
				v[u] = vectors[i + u * GROUP];
#pragma unroll
			for (int u = 0; u < UNROLL; u++)
				sum = join_vector<MAX, T>(sum, v[u]);
			i += UNROLL * GROUP;
		}
		result = total<MAX>::join(result, (double)sum);
		sum = total<MAX>::nothing();
	}
	for (; i < n_vectors; i += GROUP)
		sum = join_vector<MAX, T>(sum, vectors[i]);
	for (unsigned k = thread; k < head; k += GROUP)
		sum = total<MAX>::join(sum, (float)x[k]);
	for (unsigned k = thread; k < n_tail; k += GROUP)
		sum = total<MAX>::join(sum, (float)tail[k]);
	return total<MAX>::join(result, (double)sum);
}

template <bool MAX, typename T, unsigned GROUP>
__global__ void __launch_bounds__(THREADS) reduce_long(problem p)
{
	constexpr unsigned GROUPS = THREADS / GROUP;
	uint64_t pieces = p.rows * p.splits, step = (uint64_t)gridDim.x * GROUPS;

	await_kernel_before();
	for (uint64_t base = (uint64_t)blockIdx.x * GROUPS; base < pieces; base += step) {
		uint64_t piece = base + threadIdx.x / GROUP, row = piece / p.splits, part = piece % p.splits;
		uint64_t from = part * p.chunk, n = 0;
		double result;

		if (piece < pieces && from < p.cols)
			n = p.chunk < p.cols - from ? p.chunk : p.cols - from;
		result = reduce_run<MAX, T, GROUP>((const T *)p.x +
		                                       (n ? at_row(p, p.x_batch, row) + (int64_t)from : 0),
		                                   n, threadIdx.x % GROUP);
		if constexpr (GROUP == THREADS)
			result = join_block<MAX>(result);
		else
			result = join_lanes<MAX, GROUP>(result);
		if (threadIdx.x % GROUP == 0 && piece < pieces)
			store_piece<MAX, T>(p, row, part, result);
	}
	let_next_kernel_come();
}

/* ---- strided ---- */

/* Of a row's elements k, k + WARPS, … up to `to`, DEEP at most: all are loaded before the first is waited for.
 */
template <bool MAX, typename T>
__device__ __forceinline__ float join_some(const T *x, uint64_t k, uint64_t to, int64_t x_col)
{
	float v[DEEP];

#pragma unroll
	for (int u = 0; u < DEEP; u++)
		v[u] = k + u * WARPS < to ? (float)x[(int64_t)(k + u * WARPS) * x_col] : total<MAX>::nothing();
#pragma unroll
	for (int step = DEEP / 2; step > 0; step /= 2)
#pragma unroll
		for (int u = 0; u < step; u++)
			v[u] = total<MAX>::join(v[u], v[u + step]);
	return v[0];
}

template <bool MAX, typename T> __global__ void __launch_bounds__(THREADS) reduce_strided(problem p)
{
	__shared__ double of_warps[WARPS][WARP];
	unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
	uint64_t tiles = (p.rows + WARP - 1) / WARP, pieces = tiles * p.splits;

	await_kernel_before();
	for (uint64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
		uint64_t row = piece % tiles * WARP + lane, part = piece / tiles, from = part * p.chunk;
		uint64_t to = p.chunk < p.cols - (from < p.cols ? from : p.cols) ? from + p.chunk : p.cols;
		double result = total<MAX>::nothing();

		if (row < p.rows) {
			const T *x = (const T *)p.x + at_row(p, p.x_batch, row);
			for (uint64_t k = from + warp; k < to; k += DEEP * WARPS)
				result = total<MAX>::join(result, (double)join_some<MAX>(x, k, to, p.x_col));
		}
		__syncthreads(); /* the piece before is through with of_warps */
		of_warps[warp][lane] = result;
		__syncthreads();
		if (warp > 0 || row >= p.rows)
			continue;
		for (unsigned w = 1; w < WARPS; w++)
			result = total<MAX>::join(result, of_warps[w][lane]);
		store_piece<MAX, T>(p, row, part, result);
	}
	let_next_kernel_come();
}

/* ---- Pieces of a row ---- */

template <bool MAX, typename T> __global__ void __launch_bounds__(THREADS) join_pieces(problem p)
{
	unsigned lane = threadIdx.x % WARP;
	uint64_t step = (uint64_t)gridDim.x * WARPS;

	await_kernel_before();
	for (uint64_t row = (uint64_t)blockIdx.x * WARPS + threadIdx.x / WARP; row < p.rows; row += step) {
		double result = total<MAX>::nothing();
		for (uint32_t i = lane; i < p.splits; i += WARP)
			result = total<MAX>::join(result, p.partials[row * p.splits + i]);
		result = join_lanes<MAX, WARP>(result);
		if (lane == 0)
			store_row<MAX, T>(p, row, result);
	}
	let_next_kernel_come();
}

/* ---- Launching ---- */

problem problem_of(const op_args *args, const reduce_split &s, void *workspace)
{
	const view *x = &args->views[0], *y = &args->views[1];
	uint32_t outer = x->rank - 1;
	problem p = {};

	p.x = x->data;
	p.y = y->data;
	p.rows = s.rows;
	p.cols = s.columns;
	p.chunk = s.chunk;
	p.splits = s.splits;
	p.partials = (double *)workspace;
	p.x_col = x->strides[outer];
	for (uint32_t i = 0; i < 3; i++) {
		bool there = i + outer >= 3; /* the last `outer` of the three */
		uint32_t d = there ? i + outer - 3 : 0;

		p.batch[i] = there ? x->shape[d] : 1;
		p.x_batch[i] = there ? x->strides[d] : 0;
		p.y_batch[i] = there ? y->strides[d] : 0;
	}
	p.scale = args->params.reduce.scale;
	p.goes_on = args->params.reduce.goes_on;
	return p;
}

unsigned grid_of(uint64_t work, uint64_t per_block)
{
	uint64_t blocks = (work + per_block - 1) / per_block;

	return (unsigned)(blocks < 1 ? 1 : blocks < GRID_MAX ? blocks : GRID_MAX);
}

/* Every row is whole vectors from a multiple of 16 bytes on. */
bool begins_at_vectors(const view *x)
{
	uint64_t size = dtype_size(x->dtype), apart = (uintptr_t)x->data | x->shape[x->rank - 1] * size;

	for (uint32_t d = 0; d + 1 < x->rank; d++)
		apart |= x->shape[d] > 1 ? (uint64_t)x->strides[d] * size : 0;
	return apart % sizeof(uint4) == 0;
}

template <bool MAX, typename T, unsigned GROUP> void launch_short(const problem &p, cudaStream_t stream)
{
	launch_kernel(reduce_short<MAX, T, GROUP>,
	              {dim3(grid_of(p.rows, THREADS / GROUP * UNROLL)), dim3(THREADS)}, stream, p);
}

template <bool MAX, typename T, unsigned GROUP> void launch_long(const problem &p, cudaStream_t stream)
{
	launch_kernel(reduce_long<MAX, T, GROUP>,
	              {dim3(grid_of(p.rows * p.splits, THREADS / GROUP)), dim3(THREADS)}, stream, p);
}

template <bool MAX, typename T> void launch_rows(const view *x, const problem &p, cudaStream_t stream)
{
	uint64_t vectors = p.cols * sizeof(T) / sizeof(uint4);
	bool whole = begins_at_vectors(x) && vectors > 0;

	if (whole && vectors == 1)
		launch_short<MAX, T, 1>(p, stream);
	else if (whole && vectors == 2)
		launch_short<MAX, T, 2>(p, stream);
	else if (whole && vectors <= 4)
		launch_short<MAX, T, 4>(p, stream);
	else if (whole && vectors <= 8)
		launch_short<MAX, T, 8>(p, stream);
	else if (whole && vectors <= 16)
		launch_short<MAX, T, 16>(p, stream);
	else if (whole && vectors <= 32)
		launch_short<MAX, T, 32>(p, stream);
	else if (vectors <= 2)
		launch_long<MAX, T, 1>(p, stream);
	else if (vectors <= 32)
		launch_long<MAX, T, 8>(p, stream);
	else if (vectors <= 512)
		launch_long<MAX, T, 32>(p, stream);
	else
		launch_long<MAX, T, THREADS>(p, stream);
}

template <bool MAX, typename T> void launch_join(const problem &p, cudaStream_t stream)
{
	if (p.splits > 1)
		launch_kernel(join_pieces<MAX, T>, {dim3(grid_of(p.rows, WARPS)), dim3(THREADS)}, stream, p);
}

template <bool MAX, typename T> void launch_strided(const view *, const problem &p, cudaStream_t stream)
{
	uint64_t pieces = (p.rows + WARP - 1) / WARP * p.splits;

	launch_kernel(reduce_strided<MAX, T>, {dim3(grid_of(pieces, 1)), dim3(THREADS)}, stream, p);
}

template <bool STRIDED, bool MAX, typename T>
void launch_as(const view *x, const problem &p, cudaStream_t stream)
{
	if constexpr (STRIDED)
		launch_strided<MAX, T>(x, p, stream);
	else
		launch_rows<MAX, T>(x, p, stream);
	launch_join<MAX, T>(p, stream);
}

template <bool STRIDED, bool MAX>
void launch_by_type(const op_args *args, const problem &p, cudaStream_t stream)
{
	const view *x = &args->views[0];

	switch (x->dtype) {
	case KOPS_F16:
		launch_as<STRIDED, MAX, __half>(x, p, stream);
		break;
	case KOPS_BF16:
		launch_as<STRIDED, MAX, __nv_bfloat16>(x, p, stream);
		break;
	default:
		launch_as<STRIDED, MAX, float>(x, p, stream);
	}
}

template <bool STRIDED> int launch_any(const op_args *args, const launch *launch)
{
	reduce_split s = STRIDED ? reduce_split_tiles(args) : reduce_split_rows(args);
	problem p = problem_of(args, s, launch->workspace);
	cudaStream_t stream = (cudaStream_t)launch->stream;

	if (args->params.reduce.kind == KOPS_MAX)
		launch_by_type<STRIDED, true>(args, p, stream);
	else
		launch_by_type<STRIDED, false>(args, p, stream);
	return cuda_launch_status();
}

} // namespace

extern "C" CUDA_LAUNCH(reduce_rows)
{
	return launch_any<false>(args, launch);
}

extern "C" CUDA_LAUNCH(reduce_strided)
{
	return launch_any<true>(args, launch);
}
