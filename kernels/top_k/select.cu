/*
 * top_k on GPUs: the k largest or smallest of each row. x is read once.
 *
 *   way     what it takes                  idea                                                     bound
 *   warp    k up to 32, rows up to 4096    a warp for each row                                      HBM
 *   block   anything else                  a block for each row, or for a piece of a few long       HBM
 *                                          ones, which a second kernel joins
 *
 * Both ways go through a row in tiles of 64 bytes a thread. The first tile gives a threshold: of the best that
 * each thread has (or of several such), the k-th best. Then only what is above the threshold is collected, and
 * once the room is full, it is sorted and joined with the best so far, whose k-th is the new threshold. Random
 * rows seldom have more than a few such elements after the first tile. In a row that rises each tile is sorted.
 *
 * Elements are compared as integer keys and by their index (top_k/select.cuh).
 */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>

#include "arg_reduce/rising.cuh"
#include "common/hopper/global.cuh"
#include "common/launch.cuh"
#include "top_k/select.cuh"
#include "top_k/split.h"

namespace
{

constexpr unsigned THREADS = TOP_K_THREADS;
constexpr unsigned WARP = SELECT_LANES;
constexpr unsigned WARPS = THREADS / WARP;
constexpr uint64_t GRID_MAX = 1u << 20;
constexpr unsigned TILE_BYTES = 64; /* of a thread */

struct work {
	const void *x;
	void *values;
	int32_t *indices; /* NULL: not wanted */
	void *partials;   /* k entries of each row and piece */
	top_k_carried *carried;
	uint64_t rows, columns, chunk, batch[3];
	int64_t x_batch[3], values_batch[3], indices_batch[3], x_col, values_col, indices_col;
	uint32_t splits, k, first;
	bool smallest, by_index, goes_on;
};

/* Above 0. NaN is above infinity. */
template <typename T> __device__ __forceinline__ rising<T> key_of(T element, bool smallest)
{
	rising<T> key = is_nan(element) ? rising_bits((real<T>)INFINITY) + 1 : rising_bits(element);

	return smallest ? ~key : key;
}

/* ---- Tiles ---- */

/* Where the elements of a tile are: of GROUP threads, each of which has SLOTS. */
template <typename T, unsigned GROUP, bool VECTORS> struct row_source {
	typedef entry<rising<T>> ENTRY;
	static constexpr unsigned N = sizeof(uint4) / sizeof(T), SLOTS = TILE_BYTES / sizeof(T);

	const T *x;
	int64_t col;
	uint32_t end, first,
	    base; /* first: the index of x's element 0 in the whole row; base: where the tile begins */
	bool smallest;

	__device__ __forceinline__ uint32_t at(unsigned slot) const
	{
		unsigned thread = threadIdx.x % GROUP;

		return VECTORS ? base + (slot / N * GROUP + thread) * N + slot % N
		               : base + slot * GROUP + thread;
	}
	__device__ __forceinline__ ENTRY fetch(unsigned slot) const
	{
		return at(slot) < end
		           ? make_entry(key_of(x[(int64_t)at(slot) * col], smallest), first + at(slot))
		           : no_entry<ENTRY>();
	}
};

/* Elements of a row. */
template <typename T, unsigned GROUP, bool VECTORS> struct elements {
	typedef row_source<T, GROUP, VECTORS> SOURCE;
	typedef typename SOURCE::ENTRY ENTRY;
	typedef rising<T> KEY;
	static constexpr unsigned SLOTS = SOURCE::SLOTS;

	SOURCE source;
	KEY keys[SLOTS]; /* 0: there is none */

	__device__ __forceinline__ void load(uint32_t from)
	{
		source.base = from;
		if constexpr (VECTORS)
			load_vectors();
		else
			load_elements();
	}
	__device__ __forceinline__ ENTRY get(unsigned slot) const
	{
		return keys[slot] ? make_entry(keys[slot], source.first + source.at(slot)) : no_entry<ENTRY>();
	}
	__device__ __forceinline__ bool may_exceed(const ENTRY &least) const
	{
		KEY most = 0;

#pragma unroll
		for (unsigned s = 0; s < SLOTS; s++)
			most = keys[s] > most ? keys[s] : most;
		return most > 0 && most >= entry_key(least);
	}

      private:
	__device__ __forceinline__ KEY key_at(uint32_t at) const
	{
		return at < source.end ? key_of(source.x[(int64_t)at * source.col], source.smallest) : 0;
	}
	__device__ __forceinline__ void load_vectors()
	{
		constexpr unsigned N = SOURCE::N;
		uint4 raw[SLOTS / N];

#pragma unroll
		for (unsigned v = 0; v < SLOTS / N; v++)
			if (source.at(v * N) + N <= source.end)
				raw[v] = hopper::load_once((const uint4 *)(source.x + source.at(v * N)));
#pragma unroll
		for (unsigned v = 0; v < SLOTS / N; v++) {
			T of_vector[N];

			memcpy(of_vector, &raw[v], sizeof raw[v]);
#pragma unroll
			for (unsigned i = 0; i < N; i++)
				keys[v * N + i] = source.at(v * N) + N <= source.end
				                      ? key_of(of_vector[i], source.smallest)
				                      : key_at(source.at(v * N + i));
		}
	}
	__device__ __forceinline__ void load_elements()
	{
		T of_row[SLOTS];

#pragma unroll
		for (unsigned s = 0; s < SLOTS; s++)
			if (source.at(s) < source.end)
				of_row[s] = source.x[(int64_t)source.at(s) * source.col];
#pragma unroll
		for (unsigned s = 0; s < SLOTS; s++)
			keys[s] = source.at(s) < source.end ? key_of(of_row[s], source.smallest) : 0;
	}
};

/* A list of entries in global memory. */
template <class E> struct list_source {
	typedef E ENTRY;
	static constexpr unsigned SLOTS = 4;

	const E *list;
	uint32_t end, base;

	__device__ __forceinline__ E fetch(unsigned slot) const
	{
		uint32_t at = base + slot * THREADS + threadIdx.x;

		return at < end ? list[at] : no_entry<E>();
	}
};

/* Entries that pieces of a row have left. */
template <class E> struct left_entries {
	typedef list_source<E> SOURCE;
	typedef E ENTRY;
	static constexpr unsigned SLOTS = SOURCE::SLOTS;

	SOURCE source;
	E here[SLOTS];

	__device__ __forceinline__ void load(uint32_t from)
	{
		source.base = from;
#pragma unroll
		for (unsigned s = 0; s < SLOTS; s++)
			here[s] = source.fetch(s);
	}
	__device__ __forceinline__ E get(unsigned slot) const
	{
		return here[slot];
	}
	__device__ __forceinline__ bool may_exceed(const E &least) const
	{
		bool may = false;

#pragma unroll
		for (unsigned s = 0; s < SLOTS; s++)
			may |= here[s] > least;
		return may;
	}
};

/* The best of slots [from, to). */
template <class TILE>
__device__ __forceinline__ typename TILE::ENTRY best_of(const TILE &t, unsigned from, unsigned to)
{
	typename TILE::ENTRY best = no_entry<typename TILE::ENTRY>();

#pragma unroll
	for (unsigned s = 0; s < TILE::SLOTS; s++)
		if (s >= from && s < to)
			best = better(best, t.get(s));
	return best;
}

/* ---- Results ---- */

/* The element of an entry: of x, or one that was carried from a part before. */
template <typename T, class E>
__device__ __forceinline__ uint64_t bits_of(const work &w, const T *row, const top_k_carried *carried,
                                            const E &e)
{
	uint32_t index = entry_index(e), from = 0, end = w.k;
	uint64_t bits = 0;

	if (index >= w.first) {
		memcpy(&bits, row + (int64_t)(index - w.first) * w.x_col, sizeof(T));
		return bits;
	}
	while (end - from > 1) {
		uint32_t middle = from + (end - from) / 2;
		const top_k_carried &c = carried[middle];

		if (c.is_there && !(e > make_entry((decltype(entry_key(e)))c.key, c.index)))
			from = middle;
		else
			end = middle;
	}
	return carried[from].bits;
}

template <class E>
__device__ __forceinline__ E carried_entry(const work &w, const top_k_carried *carried, uint32_t i)
{
	if (!w.goes_on || i >= w.k || !carried[i].is_there)
		return no_entry<E>();
	return make_entry((decltype(entry_key(E{})))carried[i].key, carried[i].index);
}

template <class E> __device__ __forceinline__ bool is_there(const E &e)
{
	return e > no_entry<E>();
}

/* One result: place i of the best goes to place j of the output. */
template <typename T, class E>
__device__ __forceinline__ void store_result(const work &w, uint64_t row, uint32_t j, const E &e, uint64_t bits)
{
	if (!is_there(e))
		return;
	memcpy((T *)w.values + at_row(w, w.values_batch, row) + j * w.values_col, &bits, sizeof(T));
	if (w.indices)
		w.indices[at_row(w, w.indices_batch, row) + j * w.indices_col] = (int32_t)entry_index(e);
}

template <class E>
__device__ __forceinline__ void hand_on(top_k_carried *carried, uint32_t i, const E &e, uint64_t bits)
{
	top_k_carried c = {};

	if (is_there(e))
		c = {(uint64_t)entry_key(e), bits, entry_index(e), 1};
	carried[i] = c;
}

/* ---- A warp for each row ---- */

template <class E> __device__ __noinline__ E join_collected(const E &best, E *collected, unsigned n)
{
	unsigned lane = threadIdx.x % WARP;

	__syncwarp();
	E e = lane < n ? collected[lane] : no_entry<E>();
	__syncwarp();
	return join_lanes_of(best, sort_lanes(e));
}

template <class TILE>
__device__ __forceinline__ typename TILE::ENTRY select_by_warp(TILE &tile, typename TILE::ENTRY *collected,
                                                               uint32_t k)
{
	typedef typename TILE::ENTRY E;
	E best = no_entry<E>(), least = no_entry<E>();
	unsigned lane = threadIdx.x % WARP, n = 0;

	for (uint32_t from = 0; from < tile.source.end; from += TILE::SLOTS * WARP) {
		tile.load(from);
		if (from == 0)
			least = entry_before(from_lane(sort_lanes(best_of(tile, 0, TILE::SLOTS)), k - 1));
		if (__ballot_sync(0xffffffff, tile.may_exceed(least)) == 0)
			continue;
#pragma unroll
		for (unsigned s = 0; s < TILE::SLOTS; s++) {
			E e = tile.get(s);
			unsigned above = __ballot_sync(0xffffffff, e > least);

			if (above == 0)
				continue;
			if (n + __popc(above) > WARP) {
				best = join_collected(best, collected, n);
				least = better(least, from_lane(best, k - 1));
				above = __ballot_sync(0xffffffff, e > least);
				n = 0;
			}
			if (e > least)
				collected[n + __popc(above & ((1u << lane) - 1))] = e;
			n += __popc(above);
		}
	}
	return join_collected(best, collected, n);
}

template <typename T, class E>
__device__ __forceinline__ void finish_by_warp(const work &w, uint64_t row, E best)
{
	unsigned lane = threadIdx.x % WARP, from = lane;
	const T *x = (const T *)w.x + at_row(w, w.x_batch, row);
	top_k_carried *carried = w.carried ? w.carried + row * w.k : NULL;

	if (w.goes_on)
		best = join_lanes_of(best, carried_entry<E>(w, carried, lane));
	if (w.by_index) {
		uint64_t order = lane < w.k && is_there(best) ? make_entry(~entry_index(best), ~lane) : 0;
		order = sort_lanes(order);
		from = order ? (uint32_t)order : lane;
	}
	E e = from_lane(best, from);
	uint64_t bits = lane < w.k && is_there(e) ? bits_of(w, x, carried, e) : 0;
	__syncwarp(); /* nobody reads any more what was carried */
	if (lane >= w.k)
		return;
	if (carried)
		hand_on(carried, from, e, bits);
	store_result<T>(w, row, lane, e, bits);
}

template <typename T, bool VECTORS> __global__ void __launch_bounds__(THREADS) select_rows(work w)
{
	typedef elements<T, WARP, VECTORS> TILE;
	__shared__ typename TILE::ENTRY collected[WARPS][WARP];
	unsigned warp = threadIdx.x / WARP;

	await_kernel_before();
	for (uint64_t row = (uint64_t)blockIdx.x * WARPS + warp; row < w.rows;
	     row += (uint64_t)gridDim.x * WARPS) {
		TILE tile;

		tile.source.x = (const T *)w.x + at_row(w, w.x_batch, row);
		tile.source.col = w.x_col;
		tile.source.end = (uint32_t)w.columns;
		tile.source.first = w.first;
		tile.source.smallest = w.smallest;
		finish_by_warp<T>(w, row, select_by_warp(tile, collected[warp], w.k));
	}
	let_next_kernel_come();
}

/* ---- A block for each row, or piece of a row ---- */

template <class E, unsigned S> struct selection {
	E best[S], collected[S];
	unsigned n, wanted; /* how many are collected; how many are to be */
};

/* By all threads. Joins what was collected. */
template <class E, unsigned S> __device__ __noinline__ void join_collected(selection<E, S> &s)
{
	__syncthreads();
	for (unsigned i = threadIdx.x; i < S; i += THREADS)
		if (i >= s.n)
			s.collected[i] = no_entry<E>();
	sort_shared<THREADS, S>(s.collected);
	join_shared<THREADS, S>(s.best, s.collected);
	if (threadIdx.x == 0)
		s.n = s.wanted = 0;
	__syncthreads();
}

/* Entries that are no better than the k-th best of what the first tile's threads have. */
template <class TILE, class E, unsigned S>
__device__ __forceinline__ E first_threshold(selection<E, S> &s, const TILE &tile, uint32_t k)
{
	constexpr unsigned EACH = S / THREADS, SLOTS = TILE::SLOTS / EACH;

#pragma unroll
	for (unsigned i = 0; i < EACH; i++)
		s.collected[i * THREADS + threadIdx.x] = best_of(tile, i * SLOTS, (i + 1) * SLOTS);
	sort_shared<THREADS, S>(s.collected);
	E least = entry_before(s.collected[k - 1]);
	__syncthreads();
	return least;
}

/* Slot by slot, with a look at the room before each. Elements are read again, since the registers that hold
 * them cannot be numbered. Returns the threshold. */
template <class SOURCE, class E, unsigned S>
__device__ __noinline__ E collect_slowly(selection<E, S> &s, SOURCE source, E least, uint32_t k)
{
	for (unsigned slot = 0; slot < SOURCE::SLOTS; slot++) {
		__syncthreads();
		bool is_full = s.n + THREADS > S;
		__syncthreads();
		if (is_full) {
			join_collected(s);
			least = better(least, s.best[k - 1]);
		}
		E e = source.fetch(slot);
		if (e > least)
			s.collected[atomicAdd(&s.n, 1u)] = e;
	}
	__syncthreads();
	if (threadIdx.x == 0)
		s.wanted = s.n;
	return least;
}

/* Leaves the best in s.best, sorted. */
template <class TILE, class E, unsigned S>
__device__ __forceinline__ void select_by_block(selection<E, S> &s, TILE &tile, uint32_t k)
{
	E least = no_entry<E>();

	__syncthreads(); /* the piece before is through */
	for (unsigned i = threadIdx.x; i < S; i += THREADS)
		s.best[i] = no_entry<E>();
	if (threadIdx.x == 0)
		s.n = s.wanted = 0;
	for (uint32_t from = 0; from < tile.source.end; from += TILE::SLOTS * THREADS) {
		tile.load(from);
		if (from == 0 && tile.source.end > S)
			least = first_threshold(s, tile, k);
		if (!__syncthreads_or(tile.may_exceed(least)))
			continue;
		unsigned above = 0;
#pragma unroll
		for (unsigned slot = 0; slot < TILE::SLOTS; slot++)
			above += tile.get(slot) > least;
		if (above > 0)
			atomicAdd(&s.wanted, above);
		__syncthreads();
		bool fits = s.wanted <= S;
		__syncthreads();
		if (!fits) {
			least = collect_slowly(s, tile.source, least, k);
			continue;
		}
#pragma unroll
		for (unsigned slot = 0; slot < TILE::SLOTS; slot++)
			if (tile.get(slot) > least)
				s.collected[atomicAdd(&s.n, 1u)] = tile.get(slot);
	}
	join_collected(s);
}

/* Joins what was carried, and writes the row's results. */
template <typename T, class E, unsigned S>
__device__ __forceinline__ void finish_by_block(selection<E, S> &s, const work &w, uint64_t row)
{
	constexpr unsigned EACH = S / THREADS;
	const T *x = (const T *)w.x + at_row(w, w.x_batch, row);
	top_k_carried *carried = w.carried ? w.carried + row * w.k : NULL;
	uint64_t *order = (uint64_t *)s.collected, bits[EACH];
	uint32_t from[EACH];

	if (w.goes_on) {
		for (unsigned i = threadIdx.x; i < S; i += THREADS)
			s.collected[i] = carried_entry<E>(w, carried, i);
		join_shared<THREADS, S>(s.best, s.collected);
	}
	if (w.by_index) {
		for (unsigned i = threadIdx.x; i < S; i += THREADS)
			order[i] = i < w.k && is_there(s.best[i]) ? make_entry(~entry_index(s.best[i]), ~i) : 0;
		sort_shared<THREADS, S>(order);
	}
#pragma unroll
	for (unsigned i = 0; i < EACH; i++) {
		uint32_t j = i * THREADS + threadIdx.x;

		if (j >= w.k)
			continue;
		from[i] = w.by_index && order[j] ? (uint32_t)order[j] : j;
		bits[i] = is_there(s.best[from[i]]) ? bits_of(w, x, carried, s.best[from[i]]) : 0;
	}
	__syncthreads(); /* nobody reads any more what was carried */
#pragma unroll
	for (unsigned i = 0; i < EACH; i++) {
		uint32_t j = i * THREADS + threadIdx.x;

		if (j >= w.k)
			continue;
		if (carried)
			hand_on(carried, from[i], s.best[from[i]], bits[i]);
		store_result<T>(w, row, j, s.best[from[i]], bits[i]);
	}
}

template <typename T, bool VECTORS, unsigned S> __global__ void __launch_bounds__(THREADS) select_pieces(work w)
{
	typedef elements<T, THREADS, VECTORS> TILE;
	typedef typename TILE::ENTRY ENTRY;
	__shared__ selection<ENTRY, S> s;

	await_kernel_before();
	for (uint64_t piece = blockIdx.x; piece < w.rows * w.splits; piece += gridDim.x) {
		uint64_t row = piece / w.splits, from = piece % w.splits * w.chunk;
		TILE tile;

		tile.source.x = (const T *)w.x + at_row(w, w.x_batch, row) + (int64_t)from * w.x_col;
		tile.source.col = w.x_col;
		tile.source.end = (uint32_t)(w.chunk < w.columns - from ? w.chunk : w.columns - from);
		tile.source.first = w.first + (uint32_t)from;
		tile.source.smallest = w.smallest;
		select_by_block(s, tile, w.k);
		if (w.splits == 1)
			finish_by_block<T>(s, w, row);
		else
			for (unsigned i = threadIdx.x; i < w.k; i += THREADS)
				((ENTRY *)w.partials)[piece * w.k + i] = s.best[i];
	}
	let_next_kernel_come();
}

template <typename T, unsigned S> __global__ void __launch_bounds__(THREADS) join_pieces(work w)
{
	typedef entry<rising<T>> ENTRY;
	__shared__ selection<ENTRY, S> s;

	await_kernel_before();
	for (uint64_t row = blockIdx.x; row < w.rows; row += gridDim.x) {
		left_entries<ENTRY> tile;

		tile.source.list = (const ENTRY *)w.partials + row * w.splits * w.k;
		tile.source.end = w.splits * w.k;
		select_by_block(s, tile, w.k);
		finish_by_block<T>(s, w, row);
	}
	let_next_kernel_come();
}

/* ---- Launching ---- */

work work_of(const op_args *args, const top_k_split &s, void *workspace)
{
	const view *x = &args->views[TOP_K_X], *values = &args->views[TOP_K_VALUES],
	           *indices = &args->views[TOP_K_INDICES];
	const plain_params &p = args->params.plain;
	work w = {};

	w.x = x->data;
	w.values = values->data;
	w.indices = (int32_t *)indices->data;
	w.partials = workspace;
	w.carried = top_k_carried_row(args, 0);
	w.rows = s.rows;
	w.columns = s.columns;
	w.chunk = s.chunk;
	w.splits = s.splits;
	for (unsigned d = 0; d < 3; d++) {
		w.batch[d] = values->shape[d];
		w.x_batch[d] = x->strides[d];
		w.values_batch[d] = values->strides[d];
		w.indices_batch[d] = indices->strides[d];
	}
	w.x_col = x->strides[3];
	w.values_col = values->strides[3];
	w.indices_col = indices->strides[3];
	w.k = top_k_count(args);
	w.first = top_k_first(args);
	w.smallest = top_k_is(args, TOP_K_SMALLEST);
	w.by_index = top_k_by_index(args);
	w.goes_on = p.flags[TOP_K_IS_PART] && p.flags[TOP_K_GOES_ON];
	return w;
}

/* Whether each row begins at a multiple of 16 bytes, and its elements are side by side. */
bool are_vectors(const view *x)
{
	bool are = x->strides[3] == 1 && (uintptr_t)x->data % sizeof(uint4) == 0;

	for (unsigned d = 0; d < 3; d++)
		are &= x->shape[d] == 1 ||
		       stride_magnitude(x->strides[d]) * dtype_size(x->dtype) % sizeof(uint4) == 0;
	return are;
}

unsigned grid_of(uint64_t blocks)
{
	return (unsigned)(blocks < GRID_MAX ? blocks : GRID_MAX);
}

template <typename T, bool VECTORS, unsigned S> void launch_blocks(const work &w, cudaStream_t stream)
{
	launch_kernel(select_pieces<T, VECTORS, S>, {dim3(grid_of(w.rows * w.splits)), dim3(THREADS)}, stream,
	              w);
	if (w.splits > 1)
		launch_kernel(join_pieces<T, S>, {dim3(grid_of(w.rows)), dim3(THREADS)}, stream, w);
}

template <typename T, bool VECTORS> int launch_as(const work &w, bool by_warps, cudaStream_t stream)
{
	if (by_warps)
		launch_kernel(select_rows<T, VECTORS>,
		              {dim3(grid_of((w.rows + WARPS - 1) / WARPS)), dim3(THREADS)}, stream, w);
	else if (w.k <= THREADS)
		launch_blocks<T, VECTORS, THREADS>(w, stream);
	else
		launch_blocks<T, VECTORS, TOP_K_MAX>(w, stream);
	return cuda_launch_status();
}

template <typename T> int launch_type(const op_args *args, const launch *launch)
{
	top_k_split s = top_k_split_of(args);
	work w = work_of(args, s, launch->workspace);

	return are_vectors(&args->views[TOP_K_X]) ? launch_as<T, true>(w, s.by_warps, cuda_stream(launch))
	                                          : launch_as<T, false>(w, s.by_warps, cuda_stream(launch));
}

} // namespace

extern "C" CUDA_LAUNCH(top_k_select)
{
	switch (args->views[TOP_K_X].dtype) {
	case KOPS_F16:
		return launch_type<__half>(args, launch);
	case KOPS_BF16:
		return launch_type<__nv_bfloat16>(args, launch);
	case KOPS_F32:
		return launch_type<float>(args, launch);
	case KOPS_F64:
		return launch_type<double>(args, launch);
	default:
		return KOPS_E_UNSUPPORTED;
	}
}
