/* lists.cuh: the lists of a warp's queries: what may be among the best of the rows so far. */
#ifndef KOPS_KERNELS_SEARCH_WGMMA_LISTS_H
#define KOPS_KERNELS_SEARCH_WGMMA_LISTS_H

#include "search/wgmma/form.cuh"

namespace
{

#ifdef KOPS_HOPPER

/* Sorts n entries; the others are 0 then. */
__device__ __forceinline__ void sort_list(uint64_t *list, unsigned n, unsigned capacity)
{
	unsigned lane = threadIdx.x % WARP;

	if (capacity == WARP) {
		uint64_t e = sort_lanes(lane < n ? list[lane] : 0);

		__syncwarp();
		list[lane] = e;
	} else {
		for (unsigned i = lane; i < capacity; i += WARP)
			if (i >= n)
				list[i] = 0;
		if (capacity == 2 * WARP)
			sort_shared<WARP, 2 * WARP>(list);
		else
			sort_shared<WARP, 4 * WARP>(list);
	}
	__syncwarp();
}

/* Where those of a warp begin; of a warp without queries, they are never looked at. */
__device__ __forceinline__ unsigned first_list(const mapped_work &m, unsigned warp)
{
	unsigned warps = m.plan.teams * TEAM_WARPS;

	return warp / warps * m.room.listed + warp % warps * WARP_QUERIES;
}

/* The lists of a warp's queries. */
struct query_lists {
	uint64_t *entries;
	unsigned *counts;             /* above capacity: some have found no room */
	unsigned capacity, k, sorted; /* sorted: a bit for each list that has a k-th best */
	search_metric metric;
	float seeds[2]; /* of this thread's queries: at least k rows have no lower directed score */

	__device__ __forceinline__ query_lists(const mapped_work &m, const search_memory &memory, unsigned warp)
	    : entries((uint64_t *)(memory.data + m.room.lists) + first_list(m, warp) * m.plan.capacity),
	      counts((unsigned *)(memory.data + m.room.counts) + warp * WARP_QUERIES),
	      capacity(m.plan.capacity), k(m.w.k), sorted(0), metric(m.w.metric), seeds{-INFINITY, -INFINITY}
	{
	}
	__device__ __forceinline__ uint64_t *of(unsigned query) const
	{
		return entries + query * capacity;
	}
	__device__ __forceinline__ void start()
	{
		if (threadIdx.x % WARP < WARP_QUERIES)
			counts[threadIdx.x % WARP] = 0;
		sorted = 0;
		seeds[0] = seeds[1] = -INFINITY;
		__syncwarp();
	}
	__device__ __forceinline__ void sort(unsigned query) const
	{
		sort_list(of(query), counts[query] < capacity ? counts[query] : capacity, capacity);
	}
	/* Whether it has found room. */
	__device__ __forceinline__ bool add(unsigned query, float directed, uint32_t index) const
	{
		unsigned at = atomicAdd(&counts[query], 1u);
		float score = metric != SEARCH_L2 ? directed : directed > 0 ? 0 : -directed; /* rounding */

		if (at < capacity)
			of(query)[at] = make_entry(key_of(score, metric), index);
		return at < capacity;
	}
};

/* The queries of a warp whose lists had no room, as bits. */
__device__ __forceinline__ unsigned full_lists(const query_lists &lists)
{
	__syncwarp();
	return __ballot_sync(0xffffffff, lists.counts[threadIdx.x % WARP % WARP_QUERIES] > lists.capacity) &
	       ((1u << WARP_QUERIES) - 1);
}

#endif

} // namespace

#endif
