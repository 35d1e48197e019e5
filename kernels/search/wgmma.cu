/*
 * search of f16 and bf16 on Hopper's tensor cores.
 *
 *   kernel        idea                                    tiles, threads            bound
 *   search_tiles  the copy engine brings tiles of the     64 queries, 256; or 128,  memory for up to 64
 *                 base; scores stay in the registers of   384, and pairs of blocks  queries; of more, the
 *                 products, and what is above a query's   share the base; by 256    tensor cores
 *                 threshold goes to its list              rows
 *
 * Queries are the rows of a product, so that four lanes of a warp have all scores of two queries: a warp's
 * lists are its own. A list that has no room for one more is sorted and cut to the best k, the last of which is
 * the threshold from there on. Squared lengths of rows are added up while products are under way.
 *
 * Measured, H200, f16, base of 10^6 rows of 768, inner products, k = 10: 1 query 359 us, 64 queries 370 us (4.2
 * TB/s), 512 queries 0.98 ms (800 TFLOP/s).
 */
#include "search/wgmma_plan.h"

#include <math.h>

#include "fitted.h"
#include "search/wgmma/kernel.cuh"

#if defined(__CUDA_ARCH__) && !defined(KOPS_HOPPER)
#pragma nv_diag_suppress 177 /* the kernel is empty there, and what it would use unused */
#endif

namespace
{

/* The best k. */
struct exact_lists
#ifdef KOPS_HOPPER
    : query_lists {
	static constexpr bool LOOKS_AT_GROUPS = false; /* takes longer where many rows come */
	const work &w;

	__device__ __forceinline__ exact_lists(const mapped_work &m, const search_memory &memory, unsigned warp)
	    : query_lists(m, memory, warp), w(m.w)
	{
	}
	__device__ __forceinline__ void see(const thread_queries &, const float *) const
	{
	}
	/* Cuts lists that had no room. Returns whether there were some. */
	__device__ __forceinline__ bool cut(const thread_queries &)
	{
		unsigned left = full_lists(*this);

		if (left == 0)
			return false;
		sorted |= left;
		for (; left != 0; left &= left - 1) {
			unsigned query = (unsigned)__ffs((int)left) - 1;

			sort(query);
			if (threadIdx.x % WARP == 0)
				counts[query] = k;
		}
		__syncwarp();
		return true;
	}
	/* The least directed score that may come. above: it has to be above the k-th best. */
	__device__ __forceinline__ float bound_of(int half, bool above) const
	{
		unsigned query = query_of_thread(half);

		if (!(sorted >> query & 1)) /* distances below 0 are 0 */
			return metric == SEARCH_L2 ? fminf(seeds[half], 0) : seeds[half];
		float score = score_of(entry_key(of(query)[k - 1]) + above, metric);
		return metric == SEARCH_L2 ? -score : score;
	}
	__device__ __forceinline__ void write(uint64_t first, unsigned piece) const
	{
		__syncwarp();
		for (unsigned query = 0; query < WARP_QUERIES && first + query < w.n_queries; query++) {
			sort(query);
			for (unsigned i = threadIdx.x % WARP; i < k; i += WARP)
				w.partials[((first + query) * w.pieces + piece) * k + i] = of(query)[i];
		}
		__syncwarp();
	}
}
#endif
;

template <class CUT, typename T>
int launch_cut(const op_args *args, const search_wgmma_plan &plan, const struct launch *launch)
{
	mapped_work m = {};

	m.w = work_of(args, plan.pieces, launch->workspace);
	if (!launch_tiles<CUT, T, exact_lists>(args, m, plan, launch))
		return KOPS_E_FAULT;
	if (m.w.k <= FEW)
		launch_join<FEW>(m.w, cuda_stream(launch));
	else
		launch_join<SEARCH_MAX>(m.w, cuda_stream(launch));
	return cuda_launch_status();
}

template <typename T, bool LENGTHS>
int launch_plan(const op_args *args, const search_wgmma_plan &plan, const struct launch *launch)
{
	if (plan.kept)
		return launch_cut<search_cut<1, 1, 1, TEAM, LENGTHS>, T>(args, plan, launch);
	return plan.sharers > 1 ? launch_cut<search_cut<2, 2, 1, 0, LENGTHS>, T>(args, plan, launch)
	                        : launch_cut<search_cut<2, 1, 1, 0, LENGTHS>, T>(args, plan, launch);
}

template <typename T> int launch_type(const op_args *args, const struct launch *launch)
{
	search_wgmma_plan plan = plan_of(args);

	return search_metric_of(args) == SEARCH_IP ? launch_plan<T, false>(args, plan, launch)
	                                           : launch_plan<T, true>(args, plan, launch);
}

} // namespace

extern "C" bool search_wgmma_supports(const op_args *args, const char **ret_why_not)
{
	*ret_why_not = "takes f16 and bf16";
	if (dtype_size(args->views[SEARCH_QUERIES].dtype) != 2)
		return false;
	*ret_why_not = "takes k up to 64";
	return search_count(args) <= SEARCH_WGMMA_MOST && can_be_mapped(args, ret_why_not);
}

/* For the best k of each query and piece. */
extern "C" uint64_t search_wgmma_workspace(const op_args *args)
{
	search_wgmma_plan plan = plan_of(args);

	return args->views[SEARCH_QUERIES].shape[0] * plan.pieces * search_count(args) * sizeof(uint64_t);
}

/* Products of a block's tiles, and looks for what is above thresholds, which go on beside those of another
 * team; of each unit's first tile all scores are. */
extern "C" double search_wgmma_ns(const op_args *args)
{
	const double line_ns = 336, with_lengths = 1.5, look_ns = 7000, first_ns = 14000, joining_ns = 6000,
	             share = 0.88;
	search_wgmma_plan plan = plan_of(args);
	double rounds = ceil((double)plan.groups * plan.pieces / plan.clusters),
	       tiles = rounds * ceil((double)plan.tiles / plan.pieces),
	       queries = (double)args->views[SEARCH_QUERIES].shape[0] / (plan.teams * TEAM * plan.sharers),
	       filled = fmin(queries, 1), line = plan.lines * plan.teams * line_ns;
	double ns =
	    tiles * fmax(search_metric_of(args) == SEARCH_IP ? line : line * with_lengths, look_ns * filled) +
	    rounds * first_ns * filled;

	return 2 * fitted.reduce.launch_ns + joining_ns +
	       fmax(cuda_clock_factor() * ns,
	            cuda_ns_of_bytes((double)view_elements(&args->views[SEARCH_BASE]) * 2, share));
}

extern "C" CUDA_LAUNCH(search_wgmma)
{
	return args->views[SEARCH_QUERIES].dtype == KOPS_F16 ? launch_type<__half>(args, launch)
	                                                     : launch_type<__nv_bfloat16>(args, launch);
}
