/*
 * arg_reduce on GPUs: where the largest or smallest element of each row is. x is read once.
 *
 *   way      what it takes               idea                                               bound
 *   rows     elements side by side       4 lanes, a warp or a block for each row, four      HBM; of 16-bit
 * types vectors of 16 bytes under way; few long rows are   instructions too cut into pieces that a second
 * kernel joins strided  anything else               a warp's lanes on neighbouring rows, eight         HBM
 * where rows are elements of each under way; cut likewise           side by side
 *
 * Elements are compared as integer keys: their bits, arranged so that they rise with the number, or fall if the
 * smallest is wanted. NaN has the highest key. Of equal keys the lower index counts, so results do not depend
 * on the order. Not measured yet.
 */
#include <math.h>
#include <string.h>

#include "arg_reduce/rising.cuh"
#include "common/hopper/global.cuh"
#include "reduce/rows.cuh"

namespace
{

constexpr int UNROLL = 4;
constexpr int DEEP = 8; /* elements of a row under way, of strided */

/* The best of some elements: its key and its column. No key is as low as that of nothing. */
template <typename KEY> struct best {
	KEY key = 0;
	uint32_t at = UINT32_MAX;

	__device__ __forceinline__ void join(const best &other)
	{
		if (other.key > key || (other.key == key && other.at < at))
			*this = other;
	}
	/* One behind all that were joined before. */
	__device__ __forceinline__ void join_next(KEY next_key, uint32_t next_at)
	{
		if (next_key > key) {
			key = next_key;
			at = next_at;
		}
	}
};

/* What parts of an op hand on, and pieces of a row. */
struct found {
	uint64_t key;
	int64_t index;
};

struct work : reduced_rows {
	uint64_t flip; /* all ones if the smallest is wanted */
	found *partials;
	found *carried; /* NULL: not a part */
	bool goes_on;
	int64_t first;
};

template <typename T> __device__ __forceinline__ rising<T> key_of(T element, uint64_t flip)
{
	return is_nan(element) ? ~(rising<T>)0 : rising_bits(element) ^ (rising<T>)flip;
}

/* Of GROUP lanes, in each of them. */
template <unsigned GROUP, typename KEY> __device__ __forceinline__ best<KEY> join_lanes(best<KEY> b)
{
#pragma unroll
	for (unsigned step = GROUP / 2; step > 0; step /= 2) {
		best<KEY> other;

		other.key = __shfl_xor_sync(0xffffffff, b.key, step);
		other.at = __shfl_xor_sync(0xffffffff, b.at, step);
		b.join(other);
	}
	return b;
}

/* Of the whole block; valid in its first warp. */
template <typename KEY> __device__ __forceinline__ best<KEY> join_block(best<KEY> b)
{
	__shared__ KEY keys[WARPS];
	__shared__ uint32_t columns[WARPS];
	unsigned lane = threadIdx.x % WARP;

	b = join_lanes<WARP>(b);
	__syncthreads(); /* the piece before is through with them */
	if (lane == 0) {
		keys[threadIdx.x / WARP] = b.key;
		columns[threadIdx.x / WARP] = b.at;
	}
	__syncthreads();
	b = best<KEY>();
	if (lane < WARPS) {
		b.key = keys[lane];
		b.at = columns[lane];
	}
	return join_lanes<WARP>(b);
}

/* ---- Where results go ---- */

__device__ __forceinline__ void join_found(found &all, const found &other)
{
	if (other.key > all.key || (other.key == all.key && other.index < all.index))
		all = other;
}

__device__ __forceinline__ void store_row(const work &w, uint64_t row, found all)
{
	if (w.goes_on)
		join_found(all, w.carried[row]);
	if (w.carried)
		w.carried[row] = all;
	((int32_t *)w.y)[at_row(w, w.y_batch, row)] = (int32_t)all.index;
}

/* from: the column that b's are relative to. */
template <typename KEY>
__device__ __forceinline__ void store_piece(const work &w, uint64_t row, uint64_t part, uint64_t from,
                                            const best<KEY> &b)
{
	bool is_nothing = b.at == UINT32_MAX;
	found all = {b.key, is_nothing ? INT64_MAX : w.first + (int64_t)(from + b.at)};

	if (w.splits == 1)
		store_row(w, row, all);
	else
		w.partials[part * w.rows + row] = all;
}

/* ---- rows ---- */

/* n elements side by side, by GROUP threads of which this is one: its share. */
template <typename T, unsigned GROUP>
__device__ __forceinline__ best<rising<T>> find_in_run(const T *x, uint32_t n, unsigned thread, uint64_t flip)
{
	constexpr uint32_t N = sizeof(uint4) / sizeof(T);
	uint32_t head = (uint32_t)((sizeof(uint4) - (uintptr_t)x % sizeof(uint4)) % sizeof(uint4) / sizeof(T));
	best<rising<T>> b, of_vectors;

	head = head < n ? head : n;
	const uint4 *vectors = (const uint4 *)(x + head);
	uint32_t n_vectors = (n - head) / N, tail = head + n_vectors * N;

	for (uint32_t i = thread; i < n_vectors; i += UNROLL * GROUP) {
		uint4 v[UNROLL];

#pragma unroll
		for (uint32_t u = 0; u < UNROLL; u++)
			if (i + u * GROUP < n_vectors)
				v[u] = hopper::load_once(vectors + i + u * GROUP);
#pragma unroll
		for (uint32_t u = 0; u < UNROLL; u++) {
			T elements[N];

			if (i + u * GROUP >= n_vectors)
				break;
			memcpy(elements, &v[u], sizeof v[u]);
#pragma unroll
			for (uint32_t k = 0; k < N; k++)
				of_vectors.join_next(key_of(elements[k], flip), head + (i + u * GROUP) * N + k);
		}
	}
	for (uint32_t k = thread; k < head; k += GROUP)
		b.join_next(key_of(x[k], flip), k);
	b.join(of_vectors);
	for (uint32_t k = tail + thread; k < n; k += GROUP)
		b.join_next(key_of(x[k], flip), k);
	return b;
}

template <typename T, unsigned GROUP> __global__ void __launch_bounds__(THREADS) find_in_rows(work w)
{
	constexpr unsigned GROUPS = THREADS / GROUP;
	uint64_t pieces = w.rows * w.splits, step = (uint64_t)gridDim.x * GROUPS;

	await_kernel_before();
	for (uint64_t base = (uint64_t)blockIdx.x * GROUPS; base < pieces; base += step) {
		uint64_t piece = base + threadIdx.x / GROUP, row = piece / w.splits, part = piece % w.splits;
		uint64_t from = part * w.chunk, n = 0;

		if (piece < pieces && from < w.cols)
			n = w.chunk < w.cols - from ? w.chunk : w.cols - from;
		best<rising<T>> b =
		    find_in_run<T, GROUP>((const T *)w.x + (n ? at_row(w, w.x_batch, row) + (int64_t)from : 0),
		                          (uint32_t)n, threadIdx.x % GROUP, w.flip);
		if constexpr (GROUP == THREADS)
			b = join_block(b);
		else
			b = join_lanes<GROUP>(b);
		if (threadIdx.x % GROUP == 0 && piece < pieces)
			store_piece(w, row, part, from, b);
	}
	let_next_kernel_come();
}

/* ---- strided ---- */

template <typename T> __global__ void __launch_bounds__(THREADS) find_in_columns(work w)
{
	uint64_t tiles = (w.rows + WARP - 1) / WARP, pieces = tiles * w.splits,
	         step = (uint64_t)gridDim.x * WARPS;

	await_kernel_before();
	for (uint64_t piece = (uint64_t)blockIdx.x * WARPS + threadIdx.x / WARP; piece < pieces;
	     piece += step) {
		uint64_t row = piece % tiles * WARP + threadIdx.x % WARP, part = piece / tiles;
		uint64_t from = part * w.chunk < w.cols ? part * w.chunk : w.cols;
		uint64_t to = w.chunk < w.cols - from ? from + w.chunk : w.cols;
		best<rising<T>> b;

		if (row >= w.rows)
			continue;
		const T *x = (const T *)w.x + at_row(w, w.x_batch, row);
		for (uint64_t k = from; k < to; k += DEEP) {
			T v[DEEP];

#pragma unroll
			for (int u = 0; u < DEEP; u++)
				if (k + u < to)
					v[u] = x[(int64_t)(k + u) * w.x_col];
#pragma unroll
			for (int u = 0; u < DEEP; u++)
				if (k + u < to)
					b.join_next(key_of(v[u], w.flip), (uint32_t)(k + u - from));
		}
		store_piece(w, row, part, from, b);
	}
	let_next_kernel_come();
}

/* ---- Pieces of a row: a warp for each row ---- */

__global__ void __launch_bounds__(THREADS) join_pieces(work w)
{
	await_kernel_before();
	for (uint64_t base = (uint64_t)blockIdx.x * WARPS; base < w.rows; base += (uint64_t)gridDim.x * WARPS) {
		uint64_t row = base + threadIdx.x / WARP;
		found all = {0, INT64_MAX};

		for (uint32_t i = threadIdx.x % WARP; i < w.splits && row < w.rows; i += WARP)
			join_found(all, w.partials[i * w.rows + row]);
#pragma unroll
		for (unsigned step = WARP / 2; step > 0; step /= 2)
			join_found(all, {__shfl_xor_sync(0xffffffff, all.key, step),
			                 __shfl_xor_sync(0xffffffff, all.index, step)});
		if (threadIdx.x % WARP == 0 && row < w.rows)
			store_row(w, row, all);
	}
	let_next_kernel_come();
}

/* ---- Launching ---- */

work work_of(const op_args *args, const reduce_split &s, void *workspace)
{
	const arg_reduce_params &p = args->params.arg_reduce;
	work w = {};

	set_rows(&w, args, s);
	w.flip = p.kind == ARG_MIN ? UINT64_MAX : 0;
	w.partials = (found *)workspace;
	w.carried = p.is_part ? (found *)args->carried : NULL;
	w.goes_on = p.goes_on;
	w.first = p.first;
	return w;
}

template <typename T, unsigned GROUP> void launch_group(const work &w, cudaStream_t stream)
{
	launch_kernel(find_in_rows<T, GROUP>,
	              {dim3(grid_of(w.rows * w.splits, THREADS / GROUP)), dim3(THREADS)}, stream, w);
}

template <bool STRIDED, typename T> int launch_as(const work &w, cudaStream_t stream)
{
	uint64_t tiles = (w.rows + WARP - 1) / WARP, bytes = w.cols * sizeof(T);

	if (STRIDED)
		launch_kernel(find_in_columns<T>, {dim3(grid_of(tiles * w.splits, WARPS)), dim3(THREADS)},
		              stream, w);
	else if (bytes <= 16 * sizeof(uint4))
		launch_group<T, 4>(w, stream);
	else if (bytes <= 512 * sizeof(uint4))
		launch_group<T, WARP>(w, stream);
	else
		launch_group<T, THREADS>(w, stream);
	if (w.splits > 1)
		launch_kernel(join_pieces, {dim3(grid_of(w.rows, WARPS)), dim3(THREADS)}, stream, w);
	return cuda_launch_status();
}

template <bool STRIDED> int launch_any(const op_args *args, const launch *launch)
{
	reduce_split s = STRIDED ? reduce_split_tiles(args) : reduce_split_rows(args);
	work w = work_of(args, s, launch->workspace);
	cudaStream_t stream = cuda_stream(launch);

	switch (args->views[0].dtype) {
	case KOPS_F16:
		return launch_as<STRIDED, __half>(w, stream);
	case KOPS_BF16:
		return launch_as<STRIDED, __nv_bfloat16>(w, stream);
	case KOPS_F32:
		return launch_as<STRIDED, float>(w, stream);
	case KOPS_F64:
		return launch_as<STRIDED, double>(w, stream);
	default:
		return KOPS_E_UNSUPPORTED;
	}
}

} // namespace

extern "C" CUDA_LAUNCH(arg_reduce_rows)
{
	return launch_any<false>(args, launch);
}

extern "C" CUDA_LAUNCH(arg_reduce_strided)
{
	return launch_any<true>(args, launch);
}
