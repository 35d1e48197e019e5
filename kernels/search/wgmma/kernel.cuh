/* kernel.cuh: a block goes through tiles of the base, and keeps what may be among the best. LISTS says what
 * may. */
#ifndef KOPS_KERNELS_SEARCH_WGMMA_KERNEL_H
#define KOPS_KERNELS_SEARCH_WGMMA_KERNEL_H

#include "search/wgmma/lists.cuh"
#include "search/wgmma/scores.cuh"

namespace
{

#ifdef KOPS_HOPPER

/* Puts those that are not below the bounds into the lists. index: of the tile's first row. */
template <class LISTS>
__device__ __forceinline__ void collect(float (&sums)[SUMS], thread_queries &q, LISTS &lists, uint32_t index)
{
	bool is_any = false;

#pragma unroll
	for (int i = 0; i < SUMS; i++)
		is_any |= sums[i] >= q.bounds[i / 2 % 2];
	if (__ballot_sync(0xffffffff, is_any) == 0)
		return;
	bool has_cut = false;
#pragma unroll
	for (int group = 0; group < SUMS; group += GROUP) {
		bool again;

		if constexpr (LISTS::LOOKS_AT_GROUPS) {
			is_any = false;
#pragma unroll
			for (int i = group; i < group + GROUP; i++)
				is_any |= sums[i] >= q.bounds[i / 2 % 2];
			if (__ballot_sync(0xffffffff, is_any) == 0)
				continue;
		}
		do {
#pragma unroll
			for (int i = group; i < group + GROUP; i++) {
				int half = i / 2 % 2;

				if (sums[i] >= q.bounds[half] &&
				    lists.add(query_of_thread(half), sums[i],
				              index + (uint32_t)(row_of_thread(i) + i % 2)))
					sums[i] = NAN;
			}
			again = lists.cut(q);
			has_cut |= again;
			/* Of those that have found no room some may have lower indices. */
			for (int half = 0; again && half < 2; half++)
				if (q.are_there[half])
					q.bounds[half] = lists.bound_of(half, false);
		} while (again);
	}
	for (int half = 0; has_cut && half < 2; half++)
		if (q.are_there[half])
			q.bounds[half] = lists.bound_of(half, true);
}

/*
 * Finds what at least k rows of a tile reach: the k-th largest among the largest of each 8 rows, or less if
 * some are equal. Only these are put into lists, instead of all rows of a first tile. seeds: -Inf if k is
 * above 32.
 */
__device__ __forceinline__ void find_seeds(const float (&sums)[SUMS], uint32_t k, float (&seeds)[2])
{
	constexpr int GROUPS = SUMS / GROUP;
	float largest[2][GROUPS];

	if (k > 4 * GROUPS)
		return;
#pragma unroll
	for (int i = 0; i < SUMS; i++) {
		float &of_group = largest[i / 2 % 2][i / GROUP];

		of_group = fmaxf(i % GROUP < 4 && i % 2 == 0 ? -INFINITY : of_group, sums[i]);
	}
	for (uint32_t n = 0; n < k; n++)
#pragma unroll
		for (int half = 0; half < 2; half++) {
			float most = -INFINITY;

#pragma unroll
			for (int g = 0; g < GROUPS; g++)
				most = fmaxf(most, largest[half][g]);
			most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
			most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
#pragma unroll
			for (int g = 0; g < GROUPS; g++)
				if (largest[half][g] == most)
					largest[half][g] = -INFINITY;
			seeds[half] = most;
		}
}

/*
 * Turns: a team waits for stages only when the other one has seen all of its own. Otherwise it could take a
 * stage for one that is filled later.
 */
template <class CUT> __device__ __forceinline__ void await_turn(unsigned turn)
{
	if constexpr (CUT::TURNS > 1)
		hopper::threads_sync<2 * WARPGROUP>(TURN_BARRIER + (int)turn);
}

template <class CUT> __device__ __forceinline__ void begin_turn(unsigned turn)
{
	if constexpr (CUT::TURNS > 1)
		hopper::threads_arrive<2 * WARPGROUP>(TURN_BARRIER + (int)turn);
}

/* Looks through a tile, which a team has to itself or with others of its turn. */
template <class CUT, typename T, class LISTS>
__device__ __forceinline__ void search_tile(float (&sums)[SUMS], const mapped_work &m, search_memory memory,
                                            search_ring<CUT> &r, thread_queries &q, LISTS &lists, unsigned tile,
                                            int team, bool is_first)
{
	const work &w = m.w;
	unsigned turn = (unsigned)team / CUT::TEAMS;
	float *of_rows = (float *)(memory.data + m.room.lengths) + turn * ROWS;
	row_lengths<CUT, T> lengths;

	await_turn<CUT>(turn);
	multiply_tile<CUT, T>(sums, lengths, m, memory, r, team % CUT::TEAMS);
	begin_turn<CUT>(turn ^ 1);
	if constexpr (CUT::LENGTHS) {
		lengths.share(of_rows, w.metric, (int)turn);
		lists.see(q, of_rows);
		if (w.metric != SEARCH_IP)
			direct_scores(sums, q, of_rows, w.metric);
	}
	if (w.filter || w.rows - tile * ROWS < ROWS)
		mask_scores(sums, w, q, tile * ROWS);
	if (is_first) {
		find_seeds(sums, w.k, lists.seeds);
		for (int half = 0; half < 2; half++)
			if (q.are_there[half])
				q.bounds[half] = lists.bound_of(half, false);
	}
	collect(sums, q, lists, w.first + tile * ROWS);
}

template <class CUT, typename T, class LISTS>
__device__ __forceinline__ void search_units(const mapped_work &m, search_memory memory, int team)
{
	unsigned warp = threadIdx.x / WARP - TEAM_WARPS, turn = (unsigned)team / CUT::TEAMS, n = 0;
	search_ring<CUT> r(m, memory);
	LISTS lists(m, memory, warp);
	float sums[SUMS];

	if constexpr (CUT::KEPT > 0)
		hopper::barrier_wait(queries_full(m, memory), 0);
	if (turn == 1)
		begin_turn<CUT>(0);
	for (unit_walk<CUT> u(m.plan); u.is_there(); u.step()) {
		thread_queries q =
		    queries_of<CUT, T>(m.w, u.first_query() + warp % (CUT::TEAMS * TEAM_WARPS) * WARP_QUERIES);
		bool is_first = true;

		lists.start();
		for (unsigned tile = u.piece(); tile < m.plan.tiles; tile += m.plan.pieces, n++) {
			if (n % CUT::TURNS != turn) {
				r.skip(m.plan.lines);
				continue;
			}
			search_tile<CUT, T>(sums, m, memory, r, q, lists, tile, team, is_first);
			is_first = false;
		}
		lists.write(q.first, u.piece() * CUT::TURNS + turn);
	}
	if (n % CUT::TURNS == turn)
		await_turn<CUT>(turn); /* has begun */
}

#endif

/* A block keeps to one multiprocessor. */
template <class CUT, typename T, class LISTS>
__global__ void __launch_bounds__(CUT::THREADS, 1) search_tiles(const __grid_constant__ mapped_work m)
{
#ifdef KOPS_HOPPER
	extern __shared__ char shared[];
	search_memory memory(shared);
	/* Of its first thread, so that the compiler sees that it is the same for a warp. */
	int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0);

	let_next_kernel_come();
	if (threadIdx.x == 0) {
		hopper::prefetch_map(&m.q);
		hopper::prefetch_map(&m.base);
		init_barriers<CUT>(m, memory);
	}
	if constexpr (CUT::SHARERS > 1)
		hopper::cluster_sync();
	else
		__syncthreads();
	await_kernel_before();
	if (warp < TEAM_WARPS) {
		if constexpr (CUT::THREADS > 2 * WARPGROUP)
			hopper::fewer_registers<40>();
		if (threadIdx.x == 0)
			load_tiles<CUT, T>(m, memory);
	} else {
		if constexpr (CUT::THREADS > 2 * WARPGROUP)
			hopper::more_registers<232>();
		search_units<CUT, T, LISTS>(m, memory, warp / TEAM_WARPS - 1);
	}
	/* What others send to this block arrives while it is there. */
	if constexpr (CUT::SHARERS > 1)
		hopper::cluster_sync();
#endif
}

/* ---- Launching ---- */

inline bool map_view(CUtensorMap *map, const view &v, unsigned rows)
{
	lines l = {v.shape[1], v.shape[0], 1, v.strides[0], 0};

	unsigned bytes = (unsigned)dtype_size(v.dtype);

	return map_lines(map, bytes == 4 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : CU_TENSOR_MAP_DATA_TYPE_UINT16,
	                 v.data, l, LINE / bytes, rows, CU_TENSOR_MAP_SWIZZLE_128B);
}

/* Elements of a row side by side, rows at multiples of 16 bytes. */
inline bool has_mapped_rows(const view *v)
{
	return (uintptr_t)v->data % 16 == 0 && v->offset % 16 == 0 &&
	       (v->shape[1] == 1 || v->strides[1] == 1) &&
	       (v->shape[0] == 1 || map_stride(v->strides[0], (int)dtype_size(v->dtype)));
}

/* m: all but what a plan says. */
template <class CUT, typename T, class LISTS>
bool launch_tiles(const op_args *args, mapped_work m, const search_wgmma_plan &plan,
                  const struct launch *launch)
{
	m.plan = plan;
	m.room = search_wgmma_room_of(&plan);
	if (!map_view(&m.q, args->views[SEARCH_QUERIES], CUT::KEPT ? CUT::KEPT : CUT::TEAMS * TEAM) ||
	    !map_view(&m.base, args->views[SEARCH_BASE], CUT::BOX))
		return false;
	cudaFuncSetAttribute(search_tiles<CUT, T, LISTS>, cudaFuncAttributeMaxDynamicSharedMemorySize,
	                     SEARCH_SHARED_MAX);
	launch_kernel(search_tiles<CUT, T, LISTS>,
	              {dim3(plan.clusters * CUT::SHARERS), dim3(CUT::THREADS), plan.shared_bytes, CUT::SHARERS,
	               cuda_may_be_early(launch)},
	              cuda_stream(launch), m);
	return true;
}

inline search_wgmma_plan plan_of(const op_args *args)
{
	return search_wgmma_plan_of(args, (unsigned)gemm_hopper_multiprocessors());
}

/* What both kernels need beside their type and the number of results. */
inline bool can_be_mapped(const op_args *args, const char **ret_why_not)
{
	const view *q = &args->views[SEARCH_QUERIES], *base = &args->views[SEARCH_BASE];

	*ret_why_not = "takes from 1 to 4096 columns of 16 bits, or 2048 of f32";
	if (q->shape[1] == 0 || q->shape[1] * dtype_size(q->dtype) > SEARCH_LINE_MAX * LINE)
		return false;
	*ret_why_not = "needs a base with rows, and takes up to 2^24 queries";
	if (q->shape[0] == 0 || base->shape[0] == 0 || q->shape[0] > SEARCH_QUERIES_MAX)
		return false;
	*ret_why_not = "needs rows that begin at multiples of 16 bytes, of elements side by side";
	if (!has_mapped_rows(q) || !has_mapped_rows(base))
		return false;
	*ret_why_not = "needs a GPU of compute capability 9.0";
	return gemm_hopper_multiprocessors() != 0;
}

} // namespace

#endif
