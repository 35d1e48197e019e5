/*
 * search of f32 on Hopper's tensor cores: as exact as by FMA.
 *
 *   kernel        idea                                    tiles, threads           bound
 *   search_tiles  as in wgmma.cu, by tf32: of each query  256 rows; 8 queries that memory for up to 64
 *                 the rows stay that may be among the     serve as 64, 64, or     queries; of more, the
 *                 best, by how far such a product may be  128, of which pairs of  tensor cores
 *                 off                                     blocks share the base
 *   score_again   a block for each query computes the     256                     latency
 *                 scores of those rows in f32
 *
 * A product of tf32 is off by up to 2^-9 of both lengths, and the k-th best by as much. Of random rows some 20
 * are so near that they are scored again, for k = 10. Where there are more than there is room for, as among
 * rows that are all alike, the query is left to the kernel `lanes`, whose blocks mostly end at once.
 *
 * Measured, H200, base of 10^6 rows of 768, inner products, k = 10: 1 query 0.81 ms, 8 0.87, 64 1.07, 512 3.8.
 */
#include "search/refine.h"

#include <math.h>

#include "fitted.h"
#include "search/wgmma/kernel.cuh"

#if defined(__CUDA_ARCH__) && !defined(KOPS_HOPPER)
#pragma nv_diag_suppress 177 /* the kernel is empty there, and what it would use unused */
#endif

namespace
{

constexpr float SQUARE_MIN = 0x1p-100f; /* of what is smaller, squares are not exact */
constexpr unsigned AGAIN_MAX = 512;     /* rows of a query that are scored again */
constexpr unsigned SORTED = 64;         /* at least REFINE_MOST */

/* ---- How far a score may be off ---- */

/* squares: of the query and of the longest row. Twice as far: so much apart scores may seem that are equal. */
__device__ __forceinline__ float slack_of(float off, float of_query, float of_row, const work &w)
{
	float lengths = sqrtf(fmaxf(of_query, SQUARE_MIN)) * sqrtf(fmaxf(of_row, SQUARE_MIN)),
	      rounding = (float)w.columns * 0x1p-22f;

	return 2.02f * (w.metric == SEARCH_COSINE ? off + rounding
	                : w.metric == SEARCH_L2   ? 2 * off * lengths + rounding * (of_query + of_row)
	                                          : off * lengths);
}

/* As direct_scores() has it: larger is better. */
__device__ __forceinline__ float directed_score(uint64_t e, search_metric metric)
{
	float score = score_of(entry_key(e), metric);

	return metric == SEARCH_L2 ? -score : score;
}

/* What may be among the best k, in a list of a query and a piece. */
struct near_lists
#ifdef KOPS_HOPPER
    : query_lists {
	static constexpr bool LOOKS_AT_GROUPS = true; /* few rows are near: most code is passed over */
	const mapped_work &m;
	uint64_t first;
	unsigned doubtful; /* a bit for each query that is left to others */
	float slack[2], longest;

	__device__ __forceinline__ near_lists(const mapped_work &m, const search_memory &memory, unsigned warp)
	    : query_lists(m, memory, warp), m(m), first(0), doubtful(0), slack{0, 0}, longest(0)
	{
	}
	/* A tile's rows. */
	__device__ __forceinline__ void see(thread_queries &q, const float *of_rows)
	{
		if (q.first != first)
			first = q.first, doubtful = 0;
		if (metric != SEARCH_COSINE) {
#pragma unroll
			for (int i = 0; i < SUMS; i += 4) {
				float2 pair = *(const float2 *)(of_rows + row_of_thread(i));

				longest = fmaxf(longest, fmaxf(pair.x, pair.y));
			}
			longest = fmaxf(longest, __shfl_xor_sync(~0u, longest, 1));
			longest = fmaxf(longest, __shfl_xor_sync(~0u, longest, 2));
		}
#pragma unroll
		for (int half = 0; half < 2; half++) {
			slack[half] = slack_of(m.off, q.parts[half], longest, m.w);
			if (q.are_there[half])
				q.bounds[half] = bound_of(half, false);
		}
	}
	/* Cuts lists that had no room, if there are some. */
	__device__ __forceinline__ bool cut(const thread_queries &q)
	{
		unsigned left = full_lists(*this), lane = threadIdx.x % WARP;

		if (left == 0)
			return false;
		sorted |= left;
		for (; left != 0; left &= left - 1) {
			unsigned query = (unsigned)__ffs((int)left) - 1, near = 0;
			float of_query =
			    __shfl_sync(~0u, query < 8 ? slack[0] : slack[1], (int)(query % 8 * 4));

			sort(query);
			float least = directed_score(of(query)[k - 1], metric) - of_query;

			for (unsigned i = lane; i < capacity; i += WARP)
				near +=
				    __popc(__ballot_sync(~0u, directed_score(of(query)[i], metric) >= least));
			if (near > capacity / 4 * 3 || !(of_query < INFINITY)) {
				doubtful |= 1u << query;
				near = k;
				if (lane == 0)
					m.doubts.queries[q.first + query] = 1;
			}
			if (lane == 0)
				counts[query] = near;
		}
		__syncwarp();
		return true;
	}
	/* The least directed score that may come. */
	__device__ __forceinline__ float bound_of(int half, bool) const
	{
		unsigned query = query_of_thread(half);

		if (doubtful >> query & 1)
			return NAN;
		if (!(sorted >> query & 1))
			return seeds[half] - slack[half];
		return directed_score(of(query)[k - 1], metric) - slack[half];
	}
	__device__ __forceinline__ void write(uint64_t first_query, unsigned piece) const
	{
		const work &w = m.w;

		__syncwarp();
		for (unsigned query = 0; query < WARP_QUERIES && first_query + query < w.n_queries; query++) {
			sort(query);
			for (unsigned i = threadIdx.x % WARP; i < capacity; i += WARP)
				w.partials[((first_query + query) * w.pieces + piece) * capacity + i] =
				    of(query)[i];
		}
		if (threadIdx.x % WARP % 4 == 0 && longest > 0 &&
		    *(volatile unsigned *)m.doubts.longest < __float_as_uint(longest))
			atomicMax(m.doubts.longest, __float_as_uint(longest));
		__syncwarp();
	}
}
#endif
;

/* ---- Scores of f32 ---- */

/* By a warp. Rows are aligned, with elements side by side; most have all their loads under way at once. */
__device__ __forceinline__ float score_row(const work &w, uint64_t query, uint64_t row)
{
	const float *of_queries = (const float *)w.queries.data + (int64_t)query * w.queries.row,
	            *of_base = (const float *)w.base.data + (int64_t)row * w.base.row;
	float sum = 0, of_query = 0, of_row = 0;

#pragma unroll 8
	for (uint32_t c = threadIdx.x % WARP; c < w.columns; c += WARP) {
		float x = of_queries[c], y = of_base[c];

		sum += w.metric == SEARCH_L2 ? (x - y) * (x - y) : x * y;
		of_query += x * x;
		of_row += y * y;
	}
	sum = sum_of_lanes(sum);
	if (w.metric != SEARCH_COSINE)
		return sum;
	float length = sqrtf(sum_of_lanes(of_row)) * sqrtf(sum_of_lanes(of_query));
	return length > 0 ? sum / length : 0;
}

__device__ __forceinline__ float squares_of(const work &w, uint64_t query)
{
	float sum = 0;

	for (uint32_t c = threadIdx.x % WARP; c < w.columns; c += WARP) {
		float x = load<float>(w.queries, query, c);

		sum += x * x;
	}
	return sum_of_lanes(sum);
}

/* What a block's warps share. */
struct again_memory {
	uint64_t room[WARPS][2 * SORTED], all[2 * SORTED];
	uint32_t rows[AGAIN_MAX];
	unsigned n;
	float least;
};

/* By the first warp: the best of what all have found. */
__device__ __forceinline__ best_rows<SORTED> join_warps(again_memory &memory, uint32_t k)
{
	best_rows<SORTED> all;

	all.start(memory.all);
	for (unsigned i = threadIdx.x; i < WARPS * SORTED; i += WARP)
		all.add(memory.room[i / SORTED][i % SORTED], k);
	all.join(k);
	return all;
}

/* Collects the rows that may be among the best; false: there are too many. */
__device__ __forceinline__ bool find_near(const mapped_work &m, again_memory &memory, uint64_t query)
{
	const work &w = m.w;
	uint64_t n = w.pieces * m.plan.capacity, most = (n + THREADS - 1) / THREADS * THREADS;
	const uint64_t *found = w.partials + query * n;
	best_rows<SORTED> b;

	b.start(memory.room[threadIdx.x / WARP]);
	for (uint64_t from = threadIdx.x; from < most; from += THREADS * SLOTS) {
		uint64_t e[SLOTS];

#pragma unroll
		for (unsigned s = 0; s < SLOTS; s++)
			e[s] = from + s * THREADS < n ? found[from + s * THREADS] : 0;
#pragma unroll
		for (unsigned s = 0; s < SLOTS; s++)
			b.add(e[s], w.k);
	}
	b.join(w.k);
	__syncthreads();
	if (threadIdx.x < WARP) {
		uint64_t last = join_warps(memory, w.k).best[w.k - 1];
		float slack = slack_of(m.off, squares_of(w, query), __uint_as_float(*m.doubts.longest), w);

		memory.n = 0;
		memory.least = last ? directed_score(last, w.metric) - slack : -INFINITY;
	}
	__syncthreads();
#pragma unroll 8
	for (uint64_t i = threadIdx.x; i < n; i += THREADS) {
		uint64_t e = found[i];

		if (e == 0 || !(directed_score(e, w.metric) >= memory.least))
			continue;
		unsigned at = atomicAdd(&memory.n, 1u);
		if (at < AGAIN_MAX)
			memory.rows[at] = entry_index(e);
	}
	__syncthreads();
	return memory.n <= AGAIN_MAX;
}

__global__ void __launch_bounds__(THREADS) score_again(const __grid_constant__ mapped_work m)
{
	__shared__ again_memory memory;
	const work &w = m.w;
	unsigned warp = threadIdx.x / WARP;

	await_kernel_before();
	for (uint64_t query = blockIdx.x; query < w.n_queries; query += gridDim.x) {
		best_rows<SORTED> b;

		if (m.doubts.queries[query])
			continue;
		if (!find_near(m, memory, query)) {
			if (threadIdx.x == 0)
				m.doubts.queries[query] = 1;
			continue;
		}
		b.start(memory.room[warp]);
		for (unsigned i = warp; i < memory.n; i += WARPS) {
			uint32_t index = memory.rows[i];
			float score = score_row(w, query, index - w.first);
			bool is_first = threadIdx.x % WARP == 0 && !is_nan(score);

			b.add(is_first ? make_entry(key_of(score, w.metric), index) : 0, w.k);
		}
		b.join(w.k);
		__syncthreads();
		if (warp == 0) {
			best_rows<SORTED> all = join_warps(memory, w.k);

			finish_query(w, all, query);
		}
		__syncthreads();
	}
	let_next_kernel_come();
}

/* ---- Launching ---- */

struct refine_layout {
	uint64_t doubts, partials, of_lanes,
	    end; /* bytes; doubts: the longest row, and a word for each query */
};

refine_layout layout_of(const op_args *args, const search_wgmma_plan &plan)
{
	uint64_t queries = args->views[SEARCH_QUERIES].shape[0];
	refine_layout l = {};

	l.partials = (l.doubts + (queries + 1) * sizeof(unsigned) + 255) / 256 * 256;
	l.of_lanes = l.partials + queries * plan.pieces * plan.turns * plan.capacity * sizeof(uint64_t);
	l.end = l.of_lanes + search_workspace(args);
	return l;
}

bool launch_plan(const op_args *args, const mapped_work &m, const search_wgmma_plan &plan,
                 const struct launch *launch)
{
	if (plan.kept)
		return launch_tiles<search_cut<1, 1, 2, SEARCH_FEW, true>, float, near_lists>(args, m, plan,
		                                                                              launch);
	if (plan.teams == 1)
		return launch_tiles<search_cut<1, 1, 2, 0, true>, float, near_lists>(args, m, plan, launch);
	return plan.sharers > 1
	           ? launch_tiles<search_cut<2, 2, 1, 0, true>, float, near_lists>(args, m, plan, launch)
	           : launch_tiles<search_cut<2, 1, 1, 0, true>, float, near_lists>(args, m, plan, launch);
}

} // namespace

extern "C" bool search_refine_supports(const op_args *args, const char **ret_why_not)
{
	*ret_why_not = "takes f32";
	if (args->views[SEARCH_QUERIES].dtype != KOPS_F32)
		return false;
	*ret_why_not = "takes k up to 32";
	return search_count(args) <= REFINE_MOST && can_be_mapped(args, ret_why_not);
}

extern "C" uint64_t search_refine_workspace(const op_args *args)
{
	return layout_of(args, plan_of(args)).end;
}

/* As search_wgmma_ns(); rows that are near take longer to look at. */
extern "C" double search_refine_ns(const op_args *args)
{
	const double line_ns = 1340, alone = 1.07, with_scores = 1.15, look_ns = 23000, first_ns = 30000,
	             again_ns = 25000, share = 0.88;
	search_wgmma_plan plan = plan_of(args);
	double rounds = ceil((double)plan.groups * plan.pieces / plan.clusters),
	       tiles = rounds * ceil((double)plan.tiles / plan.pieces),
	       queries = (double)args->views[SEARCH_QUERIES].shape[0] / (plan.teams * TEAM * plan.sharers),
	       line = plan.kept ? 0 : line_ns * (plan.teams > 1 ? 1 : alone);
	double ns = tiles * fmax(plan.lines * (search_metric_of(args) == SEARCH_IP ? line : line * with_scores),
	                         look_ns * fmin(queries, 1)) +
	            rounds * first_ns;

	return 4 * fitted.reduce.launch_ns + again_ns +
	       fmax(cuda_clock_factor() * ns,
	            cuda_ns_of_bytes((double)view_elements(&args->views[SEARCH_BASE]) * 4, share));
}

extern "C" CUDA_LAUNCH(search_refine)
{
	const float truncated = 0x1p-9f, of_line = 0x1p-20f; /* tensor cores truncate sums */
	search_wgmma_plan plan = plan_of(args);
	refine_layout layout = layout_of(args, plan);
	char *at = (char *)launch->workspace;
	cudaStream_t stream = cuda_stream(launch);
	mapped_work m = {};

	m.w = work_of(args, plan.pieces * plan.turns, at + layout.partials);
	m.plan = plan;
	m.doubts = {(unsigned *)(at + layout.doubts) + 1, (unsigned *)(at + layout.doubts)};
	m.off = truncated * 1.01f + (float)plan.lines * of_line;
	cudaMemsetAsync(at + layout.doubts, 0, layout.partials - layout.doubts, stream);
	if (!launch_plan(args, m, plan, launch))
		return KOPS_E_FAULT;
	launch_kernel(score_again, {dim3(grid_of(m.w.n_queries)), dim3(THREADS)}, stream, m);
	return search_lanes_for(args, m.doubts.queries, at + layout.of_lanes, launch);
}
