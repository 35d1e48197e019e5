/*
 * search on GPUs by FMA: a block has eight queries and a piece of the base.
 *
 *   kernel        threads                             bound
 *   score_pieces  a warp scores four rows at a time   HBM for up to 8 queries; of more, reads from L2
 *                 with all eight queries, its lanes
 *                 along the columns; then a warp for
 *                 each query looks for the best of
 *                 256 scores
 *   join_pieces   a warp for each query               latency
 *
 * Up to 1024 columns of queries are in shared memory, if k is at most 32. What is above a threshold is
 * collected, and once the room is full, it is sorted and joined with the best so far (top_k/select.cuh).
 *
 * Measured, H200, base of 10^6 rows of 768, k = 10: up to 8 queries f32 2.0 ms, f16 2.6 ms.
 */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <string.h>

#include "common/hopper/global.cuh"
#include "search/work.cuh"

namespace
{

constexpr unsigned QUERIES = SEARCH_TOGETHER, ROWS = 4;
constexpr unsigned SHARED_COLUMNS = 1024; /* of queries */

/* ---- Scores ---- */

/* Queries of a block: in shared memory as f32, or where they are. Those behind the last one are the last again.
 */
template <typename T, bool SHARED> struct block_queries {
	const work &w;
	const float *shared;
	uint64_t first;

	__device__ __forceinline__ float at(unsigned query, uint32_t column) const
	{
		if constexpr (SHARED)
			return shared[query * SHARED_COLUMNS + column];
		uint64_t number = first + query < w.n_queries ? first + query : w.n_queries - 1;
		return load<T>(w.queries, number, column);
	}
};

struct row_sums {
	float of[ROWS][QUERIES], squares[ROWS];
};

/* A lane's share of ROWS rows from `row` on; those behind the last one are the last again. */
template <typename T, bool VECTORS, bool SHARED>
__device__ __forceinline__ void add_up(row_sums &s, const work &w, const block_queries<T, SHARED> &q,
                                       uint64_t row)
{
	constexpr unsigned N = VECTORS ? sizeof(uint4) / sizeof(T) : 1;
	uint64_t numbers[ROWS];

#pragma unroll
	for (unsigned r = 0; r < ROWS; r++) {
		numbers[r] = row + r < w.rows ? row + r : w.rows - 1;
		s.squares[r] = 0;
#pragma unroll
		for (unsigned i = 0; i < QUERIES; i++)
			s.of[r][i] = 0;
	}
	for (uint32_t c = threadIdx.x % WARP * N; c < w.columns; c += WARP * N) {
		float x[ROWS][N];

#pragma unroll
		for (unsigned r = 0; r < ROWS; r++) {
			if (VECTORS && c + N <= w.columns) {
				T of_vector[N];
				uint4 raw =
				    hopper::load_once((const uint4 *)((const T *)w.base.data +
				                                      (int64_t)numbers[r] * w.base.row + c));
				memcpy(of_vector, &raw, sizeof of_vector);
#pragma unroll
				for (unsigned i = 0; i < N; i++)
					x[r][i] = (float)of_vector[i];
			} else {
#pragma unroll
				for (unsigned i = 0; i < N; i++)
					x[r][i] = c + i < w.columns ? load<T>(w.base, numbers[r], c + i) : 0;
			}
		}
#pragma unroll
		for (unsigned i = 0; i < N; i++) {
			bool there = c + i < w.columns;

#pragma unroll
			for (unsigned j = 0; j < QUERIES; j++) {
				float of_query = there ? q.at(j, c + i) : 0;

#pragma unroll
				for (unsigned r = 0; r < ROWS; r++) {
					float distance = of_query - x[r][i];

					if (w.metric == SEARCH_L2)
						s.of[r][j] += distance * distance;
					else
						s.of[r][j] += of_query * x[r][i];
				}
			}
#pragma unroll
			for (unsigned r = 0; r < ROWS; r++)
				s.squares[r] += x[r][i] * x[r][i];
		}
	}
}

/* scores: of the tile's rows with each query. lengths: squared, of queries. */
template <typename T, bool VECTORS, bool SHARED>
__device__ __forceinline__ void score_rows(const work &w, const block_queries<T, SHARED> &q,
                                           const float *lengths, uint64_t tile, unsigned row,
                                           float (*scores)[TILE])
{
	row_sums s;

	add_up<T, VECTORS>(s, w, q, tile + row);
#pragma unroll
	for (unsigned r = 0; r < ROWS; r++) {
		float square = w.metric == SEARCH_COSINE ? sqrtf(sum_of_lanes(s.squares[r])) : 0;

#pragma unroll
		for (unsigned j = 0; j < QUERIES; j++) {
			float score = sum_of_lanes(s.of[r][j]), length = square * sqrtf(lengths[j]);

			if (w.metric == SEARCH_COSINE)
				score = length > 0 ? score / length : 0;
			if (threadIdx.x % WARP == j)
				scores[j][row + r] = score;
		}
	}
}

__device__ __forceinline__ bool allows(const work &w, uint64_t query, uint32_t row)
{
	return !w.filter ||
	       (w.filter[(int64_t)query * w.filter_query + (int64_t)(row / 32) * w.filter_word] >> (row % 32) &
	        1);
}

/* Of a query, by its warp. index: of the tile's first row, in the whole base. */
template <unsigned S>
__device__ __forceinline__ void look_through(const work &w, best_rows<S> &b, uint64_t query,
                                             const float *scores, uint32_t index, uint64_t n)
{
#pragma unroll
	for (unsigned s = 0; s < SLOTS; s++) {
		unsigned i = s * WARP + threadIdx.x % WARP;
		float score = scores[i];
		bool may_come = i < n && query < w.n_queries && !is_nan(score);
		uint64_t e = may_come ? make_entry(key_of(score, w.metric), index + i) : 0;

		if (e > b.least && !allows(w, query, index + i))
			e = 0;
		b.add(e, w.k);
	}
}

/* Whether one of a block's queries is. */
__device__ __forceinline__ bool is_wanted(const work &w, uint64_t first)
{
	bool any = !w.wanted;

	for (uint64_t query = first; !any && query < first + QUERIES && query < w.n_queries; query++)
		any = w.wanted[query] != 0;
	return any;
}

template <typename T, bool VECTORS, bool SHARED, unsigned S>
__global__ void __launch_bounds__(THREADS, SEARCH_BLOCKS) score_pieces(work w)
{
	__shared__ float of_queries[SHARED ? QUERIES * SHARED_COLUMNS : 1], lengths[QUERIES],
	    scores[QUERIES][TILE];
	__shared__ uint64_t room[QUERIES][2 * S];
	unsigned warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;

	await_kernel_before();
	for (uint64_t block = blockIdx.x; block < w.groups * w.pieces; block += gridDim.x) {
		uint64_t first = block % w.groups * QUERIES, query = first + warp,
		         from = block / w.groups * w.chunk;
		uint64_t to = w.chunk < w.rows - from ? from + w.chunk : w.rows;
		block_queries<T, SHARED> q = {w, of_queries, first};
		block_queries<T, false> all = {w, NULL, first};
		best_rows<S> b;
		float length = 0;

		if (!is_wanted(w, first))
			continue;
		__syncthreads(); /* the block before is through */
		for (uint32_t c = lane; c < w.columns; c += WARP) {
			float x = all.at(warp, c);

			if constexpr (SHARED)
				of_queries[warp * SHARED_COLUMNS + c] = x;
			length += x * x;
		}
		length = sum_of_lanes(length);
		if (lane == 0)
			lengths[warp] = length;
		b.start(room[warp]);
		for (uint64_t tile = from; tile < to; tile += TILE) {
			__syncthreads();
			for (unsigned row = warp * ROWS; row < TILE && tile + row < to; row += WARPS * ROWS)
				score_rows<T, VECTORS>(w, q, lengths, tile, row, scores);
			__syncthreads();
			look_through(w, b, query, scores[warp], w.first + (uint32_t)tile, to - tile);
		}
		b.join(w.k);
		if (query < w.n_queries)
			for (unsigned i = lane; i < w.k; i += WARP)
				w.partials[(query * w.pieces + block / w.groups) * w.k + i] = b.best[i];
	}
	let_next_kernel_come();
}

/* ---- Launching ---- */

/* Whether each row begins at a multiple of 16 bytes, and its elements are side by side. */
bool are_vectors(const view *x)
{
	return x->strides[1] == 1 && (uintptr_t)x->data % sizeof(uint4) == 0 &&
	       stride_magnitude(x->strides[0]) * dtype_size(x->dtype) % sizeof(uint4) == 0;
}

template <typename T, bool VECTORS, bool SHARED, unsigned S> int launch_of(const work &w, cudaStream_t stream)
{
	launch_kernel(score_pieces<T, VECTORS, SHARED, S>, {dim3(grid_of(w.groups * w.pieces)), dim3(THREADS)},
	              stream, w);
	launch_join<S>(w, stream);
	return cuda_launch_status();
}

template <typename T, bool VECTORS> int launch_as(const work &w, cudaStream_t stream)
{
	if (w.k > FEW)
		return launch_of<T, VECTORS, false, SEARCH_MAX>(w, stream);
	return w.columns <= SHARED_COLUMNS ? launch_of<T, VECTORS, true, FEW>(w, stream)
	                                   : launch_of<T, VECTORS, false, FEW>(w, stream);
}

template <typename T>
int launch_type(const op_args *args, const launch *launch, void *workspace, const unsigned *wanted)
{
	search_split s = search_split_of(args);
	work w = work_of(args, s.pieces, workspace);

	w.groups = s.groups;
	w.chunk = s.chunk;
	w.wanted = wanted;
	return are_vectors(&args->views[SEARCH_BASE]) ? launch_as<T, true>(w, cuda_stream(launch))
	                                              : launch_as<T, false>(w, cuda_stream(launch));
}

} // namespace

extern "C" CUDA_LAUNCH(search_lanes)
{
	switch (args->views[SEARCH_QUERIES].dtype) {
	case KOPS_F16:
		return launch_type<__half>(args, launch, launch->workspace, NULL);
	case KOPS_BF16:
		return launch_type<__nv_bfloat16>(args, launch, launch->workspace, NULL);
	case KOPS_F32:
		return launch_type<float>(args, launch, launch->workspace, NULL);
	default:
		return KOPS_E_UNSUPPORTED;
	}
}

/* Blocks without a query that is wanted end at once. */
extern "C" int search_lanes_for(const op_args *args, const unsigned *wanted, void *workspace,
                                const struct launch *launch)
{
	return launch_type<float>(args, launch, workspace, wanted);
}
