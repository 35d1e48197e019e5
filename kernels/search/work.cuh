/*
 * work.cuh: what the CUDA kernels of search get, their entries, and how what they found in pieces of the base
 * is joined: by a warp for each query.
 */
#ifndef KOPS_KERNELS_SEARCH_WORK_H
#define KOPS_KERNELS_SEARCH_WORK_H

#include <math.h>

#include "arg_reduce/rising.cuh"
#include "common/launch.cuh"
#include "search/split.h"
#include "top_k/select.cuh"

namespace
{

constexpr unsigned WARP = SELECT_LANES, WARPS = SEARCH_TOGETHER, THREADS = WARP * WARPS;
constexpr unsigned TILE = SEARCH_TILE;
constexpr unsigned SLOTS = TILE / WARP; /* scores of a lane */
constexpr unsigned FEW = 32;            /* results that need little room */
constexpr uint64_t GRID_MAX = 1u << 20;

struct matrix {
	const void *data;
	int64_t row, col;
};

/* What the kernel `refine` leaves to `lanes`. */
struct search_doubts {
	unsigned *queries; /* not 0: too many rows may be among the best */
	unsigned *longest; /* the bits of the largest squared length of a row */
};

struct work {
	matrix queries, base;
	const unsigned *wanted; /* NULL: all queries; else those that are not 0 here */
	const uint32_t *filter; /* NULL: all rows may come */
	int64_t filter_query, filter_word;
	float *values;
	int32_t *indices; /* NULL: not wanted */
	int64_t values_query, values_col, indices_query, indices_col;
	uint64_t *partials;
	search_found *carried;
	uint64_t n_queries, rows, groups, pieces, chunk;
	uint32_t columns, k, first;
	search_metric metric;
	bool goes_on;
};

template <typename T> __device__ __forceinline__ float load(const matrix &m, uint64_t row, uint32_t column)
{
	return (float)((const T *)m.data)[(int64_t)row * m.row + column * m.col];
}

/* Keys rise as rows are better, and are above 0. */
__device__ __forceinline__ uint32_t key_of(float score, search_metric metric)
{
	uint32_t bits = rising_bits(score);

	return metric == SEARCH_L2 ? ~bits : bits;
}

__device__ __forceinline__ float score_of(uint32_t key, search_metric metric)
{
	uint32_t bits = metric == SEARCH_L2 ? ~key : key;

	return __uint_as_float(bits >> 31 ? bits ^ 0x80000000u : ~bits);
}

/* ---- The best of a warp ---- */

/* S of them, sorted, and what was collected since. least: what is not above it is none of them. */
template <unsigned S> struct best_rows {
	uint64_t *best, *collected, least;
	unsigned n;

	__device__ __forceinline__ void start(uint64_t *room)
	{
		best = room;
		collected = room + S;
		least = 0;
		n = 0;
		for (unsigned i = threadIdx.x % WARP; i < S; i += WARP)
			best[i] = 0;
		__syncwarp();
	}
	__device__ __forceinline__ void join(uint32_t k)
	{
		__syncwarp();
		for (unsigned i = threadIdx.x % WARP; i < S; i += WARP)
			if (i >= n)
				collected[i] = 0;
		sort_shared<WARP, S>(collected);
		join_shared<WARP, S>(best, collected);
		n = 0;
		least = best[k - 1];
		__syncwarp();
	}
	/* By all lanes. 0: none. */
	__device__ __forceinline__ void add(uint64_t e, uint32_t k)
	{
		unsigned above = __ballot_sync(0xffffffff, e > least);

		if (above == 0)
			return;
		if (n + __popc(above) > S) {
			join(k);
			above = __ballot_sync(0xffffffff, e > least);
		}
		if (e > least)
			collected[n + __popc(above & ((1u << threadIdx.x % WARP) - 1))] = e;
		n += __popc(above);
	}
};

__device__ __forceinline__ float sum_of_lanes(float sum)
{
#pragma unroll
	for (unsigned step = WARP / 2; step > 0; step /= 2)
		sum += __shfl_xor_sync(0xffffffff, sum, step);
	return sum;
}

/* ---- Results ---- */

__device__ __forceinline__ void store_row(const work &w, uint64_t query, uint32_t i, uint64_t e)
{
	search_found f = {w.metric == SEARCH_L2 ? INFINITY : -INFINITY, -1};

	if (e != 0)
		f = {score_of(entry_key(e), w.metric), (int32_t)entry_index(e)};
	w.values[(int64_t)query * w.values_query + i * w.values_col] = f.value;
	if (w.indices)
		w.indices[(int64_t)query * w.indices_query + i * w.indices_col] = f.index;
	if (w.carried)
		w.carried[query * w.k + i] = f;
}

/* By a warp: with what the parts of the op before found. */
template <unsigned S>
__device__ __forceinline__ void finish_query(const work &w, best_rows<S> &b, uint64_t query)
{
	unsigned lane = threadIdx.x % WARP;

	for (uint32_t from = 0; w.goes_on && from < w.k; from += WARP) {
		search_found f = {0, -1};

		if (from + lane < w.k)
			f = w.carried[query * w.k + from + lane];
		b.add(f.index >= 0 ? make_entry(key_of(f.value, w.metric), (uint32_t)f.index) : 0, w.k);
	}
	b.join(w.k);
	for (uint32_t i = lane; i < w.k; i += WARP)
		store_row(w, query, i, b.best[i]);
	__syncwarp();
}

template <unsigned S> __global__ void __launch_bounds__(THREADS) join_pieces(work w)
{
	__shared__ uint64_t room[WARPS][2 * S];
	unsigned warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;

	await_kernel_before();
	for (uint64_t query = (uint64_t)blockIdx.x * WARPS + warp; query < w.n_queries;
	     query += (uint64_t)gridDim.x * WARPS) {
		if (w.wanted && !w.wanted[query])
			continue;
		const uint64_t *found = w.partials + query * w.pieces * w.k;
		best_rows<S> b;

		b.start(room[warp]);
		for (uint64_t from = 0; from < w.pieces * w.k; from += TILE) {
			uint64_t e[SLOTS];

#pragma unroll
			for (unsigned s = 0; s < SLOTS; s++) {
				uint64_t i = from + s * WARP + lane;
				e[s] = i < w.pieces * w.k ? found[i] : 0;
			}
#pragma unroll
			for (unsigned s = 0; s < SLOTS; s++)
				b.add(e[s], w.k);
		}
		finish_query(w, b, query);
	}
	let_next_kernel_come();
}

/* ---- Launching ---- */

inline work work_of(const op_args *args, uint64_t pieces, void *workspace)
{
	const view *q = &args->views[SEARCH_QUERIES], *base = &args->views[SEARCH_BASE],
	           *f = &args->views[SEARCH_FILTER], *values = &args->views[SEARCH_VALUES],
	           *indices = &args->views[SEARCH_INDICES];
	const plain_params &p = args->params.plain;
	work w = {};

	w.queries = {q->data, q->strides[0], q->strides[1]};
	w.base = {base->data, base->strides[0], base->strides[1]};
	w.filter = (const uint32_t *)f->data;
	w.filter_query = f->strides[0];
	w.filter_word = f->strides[1];
	w.values = (float *)values->data;
	w.values_query = values->strides[0];
	w.values_col = values->strides[1];
	w.indices = (int32_t *)indices->data;
	w.indices_query = indices->strides[0];
	w.indices_col = indices->strides[1];
	w.partials = (uint64_t *)workspace;
	w.carried = search_carried(args, 0);
	w.n_queries = q->shape[0];
	w.rows = base->shape[0];
	w.pieces = pieces;
	w.columns = (uint32_t)q->shape[1];
	w.k = search_count(args);
	w.first = search_first(args);
	w.metric = search_metric_of(args);
	w.goes_on = p.flags[SEARCH_IS_PART] && p.flags[SEARCH_GOES_ON];
	return w;
}

inline unsigned grid_of(uint64_t blocks)
{
	return (unsigned)(blocks < 1 ? 1 : blocks < GRID_MAX ? blocks : GRID_MAX);
}

template <unsigned S> void launch_join(const work &w, cudaStream_t stream)
{
	launch_kernel(join_pieces<S>, {dim3(grid_of((w.n_queries + WARPS - 1) / WARPS)), dim3(THREADS)}, stream,
	              w);
}

} // namespace

#endif
