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
#include <string.h>

#include "common/hopper/barrier.cuh"
#include "common/hopper/cluster.cuh"
#include "common/hopper/descriptor.cuh"
#include "common/hopper/element.cuh"
#include "common/hopper/shared.cuh"
#include "common/hopper/tma.cuh"
#include "common/hopper/wgmma.cuh"
#include "fitted.h"
#include "gemm/map.cuh"
#include "search/work.cuh"

#if defined(__CUDA_ARCH__) && !defined(KOPS_HOPPER)
#pragma nv_diag_suppress 177 /* the kernel is empty there, and what it would use unused */
#endif

namespace
{

constexpr int TEAM = SEARCH_TEAM, ROWS = SEARCH_ROWS, LINE = SEARCH_LINE, LINE_COLUMNS = LINE / 2;
constexpr int WARPGROUP = 128, SUMS = ROWS / 2, GROUP = 16; /* GROUP: sums of a thread between two looks */
constexpr int LENGTHS_BARRIER = 1;                          /* a named one */
constexpr int TEAM_WARPS = WARPGROUP / 32, WARP_QUERIES = TEAM / TEAM_WARPS;

/* KEEPS: search_wgmma_plan.keeps_queries. LENGTHS: of rows and queries are needed. */
template <int TEAMS_, int SHARERS_, bool KEEPS_, bool LENGTHS_> struct search_cut {
	static constexpr int TEAMS = TEAMS_, SHARERS = SHARERS_, THREADS = (1 + TEAMS) * WARPGROUP;
	static constexpr bool KEEPS = KEEPS_, LENGTHS = LENGTHS_;
	static constexpr int BOX = ROWS / SHARERS; /* rows of a tile that a block brings */
	static constexpr int STAGE_BYTES = (ROWS + (KEEPS ? 0 : TEAMS * TEAM)) * LINE;
};

struct mapped_work {
	CUtensorMap q, base;
	work w;
	search_wgmma_plan plan;
	search_wgmma_room room;
};

#ifdef KOPS_HOPPER

/* ---- Shared memory ---- */

struct search_memory {
	char *data;
	uint32_t address;

	__device__ __forceinline__ explicit search_memory(char *shared)
	{
		uint32_t at = hopper::shared_address(shared), aligned = (at + 1023) & ~1023u;

		data = shared + (aligned - at);
		address = aligned;
	}
};

/* Stages that one side fills and the other empties. */
template <class CUT> struct search_ring {
	uint32_t data, barriers;
	unsigned stages, stage = 0, parity = 0;

	__device__ __forceinline__ search_ring(const mapped_work &m, const search_memory &memory)
	    : data(memory.address + m.room.stages), barriers(memory.address + m.room.barriers),
	      stages(m.plan.stages)
	{
	}
	__device__ __forceinline__ uint32_t full() const
	{
		return barriers + stage * 8;
	}
	__device__ __forceinline__ uint32_t empty() const
	{
		return barriers + (SEARCH_STAGES_MAX + stage) * 8;
	}
	__device__ __forceinline__ uint32_t bytes() const
	{
		return data + stage * CUT::STAGE_BYTES;
	}
	__device__ __forceinline__ void step()
	{
		if (++stage == stages)
			stage = 0, parity ^= 1;
	}
	/* Once in each warp: to all blocks that fill the stage. */
	__device__ __forceinline__ void release() const
	{
		if (threadIdx.x % 32 != 0)
			return;
		if constexpr (CUT::SHARERS == 1)
			hopper::barrier_arrive(empty());
		else
			for (unsigned block = 0; block < CUT::SHARERS; block++)
				hopper::barrier_arrive(empty(), block);
	}
};

/* That of the queries. */
__device__ __forceinline__ uint32_t queries_full(const mapped_work &m, const search_memory &memory)
{
	return memory.address + m.room.barriers + 2 * SEARCH_STAGES_MAX * 8;
}

template <class CUT> __device__ __forceinline__ void init_barriers(const mapped_work &m, search_memory memory)
{
	search_ring<CUT> r(m, memory);

	for (unsigned i = 0; i < m.plan.stages; i++, r.step()) {
		hopper::barrier_init(r.full(), 1);
		hopper::barrier_init(r.empty(), CUT::SHARERS * CUT::TEAMS * TEAM_WARPS);
	}
	hopper::barrier_init(queries_full(m, memory), 1);
	hopper::barriers_ready();
}

/* ---- Units ---- */

template <class CUT> __device__ __forceinline__ unsigned rank_in_cluster()
{
	return CUT::SHARERS > 1 ? hopper::cluster_rank() : 0;
}

/* What a block goes through. */
template <class CUT> struct unit_walk {
	const search_wgmma_plan &plan;
	unsigned unit;

	__device__ __forceinline__ explicit unit_walk(const search_wgmma_plan &plan)
	    : plan(plan), unit(blockIdx.x / CUT::SHARERS)
	{
	}
	__device__ __forceinline__ bool is_there() const
	{
		return unit < plan.groups * plan.pieces;
	}
	__device__ __forceinline__ void step()
	{
		unit += plan.clusters;
	}
	__device__ __forceinline__ unsigned first_query() const
	{
		return (unit % plan.groups * CUT::SHARERS + rank_in_cluster<CUT>()) * (CUT::TEAMS * TEAM);
	}
	__device__ __forceinline__ unsigned piece() const
	{
		return unit / plan.groups;
	}
};

/* ---- The loader: one thread ---- */

template <class CUT>
__device__ __forceinline__ void fetch_stage(const mapped_work &m, const search_ring<CUT> &r, int query, int row,
                                            int column)
{
	hopper::barrier_expect(r.full(), CUT::STAGE_BYTES);
	if constexpr (CUT::SHARERS == 1) {
		hopper::copy_box(r.bytes(), &m.base, column, row, 0, r.full());
	} else {
		int part = (int)hopper::cluster_rank() * CUT::BOX;

		hopper::copy_box_to((1 << CUT::SHARERS) - 1, r.bytes() + part * LINE, &m.base, column,
		                    row + part, 0, r.full());
	}
	if constexpr (!CUT::KEEPS)
		hopper::copy_box(r.bytes() + ROWS * LINE, &m.q, column, query, 0, r.full());
}

template <class CUT> __device__ __forceinline__ void load_tiles(const mapped_work &m, search_memory memory)
{
	search_ring<CUT> r(m, memory);

	if constexpr (CUT::KEEPS) {
		uint32_t full = queries_full(m, memory);

		hopper::barrier_expect(full, m.plan.lines * TEAM * LINE);
		for (unsigned line = 0; line < m.plan.lines; line++)
			hopper::copy_box(memory.address + line * TEAM * LINE, &m.q, (int)line * LINE_COLUMNS, 0,
			                 0, full);
	}
	for (unit_walk<CUT> u(m.plan); u.is_there(); u.step())
		for (unsigned tile = u.piece(); tile < m.plan.tiles; tile += m.plan.pieces)
#pragma unroll 1
			for (unsigned line = 0; line < m.plan.lines; line++, r.step()) {
				hopper::barrier_wait(r.empty(), r.parity ^ 1);
				fetch_stage<CUT>(m, r, (int)u.first_query(), (int)(tile * ROWS),
				                 (int)line * LINE_COLUMNS);
			}
}

/* ---- Lengths of rows ---- */

/* Of 8 numbers; neighbours are added up apart, so that fewer sums wait for each other. */
template <typename T> __device__ __forceinline__ void add_squares(float (&sums)[2], const float4 &eight)
{
	T of_vector[8];

	memcpy(of_vector, &eight, sizeof of_vector);
#pragma unroll
	for (int i = 0; i < 8; i++)
		sums[i % 2] += (float)of_vector[i] * (float)of_vector[i];
}

/* What a score needs of a row's squared length. */
__device__ __forceinline__ float length_part(float squares, search_metric metric)
{
	return metric == SEARCH_L2 ? squares : squares > 0 ? 1 / sqrtf(squares) : 0;
}

/* A thread's rows of a tile, every CUT::TEAMS * WARPGROUP-th, while products are under way. */
template <class CUT, typename T> struct row_lengths {
	static constexpr int THREADS = CUT::TEAMS * WARPGROUP, EACH = ROWS / THREADS;
	float squares[EACH][2];

	__device__ __forceinline__ static int row(int i)
	{
		return (int)threadIdx.x - WARPGROUP + i * THREADS;
	}
	__device__ __forceinline__ void start()
	{
#pragma unroll
		for (int i = 0; i < EACH; i++)
			squares[i][0] = squares[i][1] = 0;
	}
	/* Of a line, whose pieces may come in any order: such that the lanes' are in different banks. */
	__device__ __forceinline__ void add(uint32_t stage)
	{
#pragma unroll
		for (int piece = 0; piece < LINE / 16; piece++)
#pragma unroll
			for (int i = 0; i < EACH; i++)
				add_squares<T>(squares[i], hopper::load_shared_quad(stage + row(i) * LINE +
				                                                    (piece ^ row(i) % 8) * 16));
	}
	/* To all teams. */
	__device__ __forceinline__ void share(float *lengths, search_metric metric) const
	{
		hopper::threads_sync<THREADS>(LENGTHS_BARRIER); /* those of the tile before are read */
#pragma unroll
		for (int i = 0; i < EACH; i++)
			lengths[row(i)] = length_part(squares[i][0] + squares[i][1], metric);
		hopper::threads_sync<THREADS>(LENGTHS_BARRIER);
	}
};

/* ---- Lists ---- */

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

/* The lists of a warp's queries. */
struct query_lists {
	uint64_t *entries;
	unsigned *counts;             /* above capacity: some have found no room */
	unsigned capacity, k, sorted; /* sorted: a bit for each list that has a k-th best */
	search_metric metric;

	__device__ __forceinline__ query_lists(const mapped_work &m, const search_memory &memory, unsigned warp)
	    : entries((uint64_t *)(memory.data + m.room.lists) + warp * WARP_QUERIES * m.plan.capacity),
	      counts((unsigned *)(memory.data + m.room.counts) + warp * WARP_QUERIES),
	      capacity(m.plan.capacity), k(m.w.k), sorted(0), metric(m.w.metric)
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
	/* Cuts lists that had no room. Returns whether there were some. */
	__device__ __forceinline__ bool cut()
	{
		unsigned lane = threadIdx.x % WARP;

		__syncwarp();
		unsigned left = __ballot_sync(0xffffffff, counts[lane % WARP_QUERIES] > capacity) &
		                ((1u << WARP_QUERIES) - 1);
		if (left == 0)
			return false;
		sorted |= left;
		for (; left != 0; left &= left - 1) {
			unsigned query = (unsigned)__ffs((int)left) - 1;

			sort(query);
			if (lane == 0)
				counts[query] = k;
		}
		__syncwarp();
		return true;
	}
	/* The least directed score that may come. above: it has to be above the k-th best. */
	__device__ __forceinline__ float bound_of(unsigned query, bool above) const
	{
		if (!(sorted >> query & 1))
			return -INFINITY;
		float score = score_of(entry_key(of(query)[k - 1]) + above, metric);
		return metric == SEARCH_L2 ? -score : score;
	}
};

/* ---- Scores ---- */

/* What a thread knows of its two queries, 8 apart in the warp's 16. */
struct thread_queries {
	uint64_t first; /* of the warp */
	bool are_there[2];
	float parts[2];  /* length_part() */
	float bounds[2]; /* NaN: there is none */
};

__device__ __forceinline__ unsigned query_of_thread(int half)
{
	return threadIdx.x % WARP / 4 + (unsigned)half * 8;
}

/* Of a tile: of sums[i] and the next. */
__device__ __forceinline__ int row_of_thread(int i)
{
	return i / 4 * 8 + (int)threadIdx.x % 4 * 2;
}

template <typename T> __device__ __forceinline__ thread_queries queries_of(const work &w, uint64_t first)
{
	thread_queries q;

	q.first = first;
#pragma unroll
	for (int half = 0; half < 2; half++) {
		q.parts[half] = 0;
		q.are_there[half] = first + query_of_thread(half) < w.n_queries;
		q.bounds[half] = q.are_there[half] ? -INFINITY : NAN;
		for (unsigned i = 0; w.metric != SEARCH_IP && i < WARP_QUERIES / 2; i++) {
			uint64_t query = first + (unsigned)half * 8 + i;
			float squares = 0;

			if (query < w.n_queries)
				for (uint32_t c = threadIdx.x % WARP; c < w.columns; c += WARP) {
					float x = load<T>(w.queries, query, c);

					squares += x * x;
				}
			squares = sum_of_lanes(squares);
			if (threadIdx.x % WARP / 4 == i)
				q.parts[half] = length_part(squares, w.metric);
		}
	}
	return q;
}

/* Makes scores of products, such that larger ones are better: of l2, minus the distance. */
__device__ __forceinline__ void direct_scores(float (&sums)[SUMS], const thread_queries &q,
                                              const float *lengths, search_metric metric)
{
	bool has_infinite = false;

#pragma unroll
	for (int i = 0; i < SUMS; i += 4) {
		float2 of_rows = *(const float2 *)(lengths + row_of_thread(i));
#pragma unroll
		for (int n = 0; n < 4; n++) {
			float length = n % 2 == 0 ? of_rows.x : of_rows.y, part = q.parts[n / 2];

			if (metric == SEARCH_COSINE) {
				sums[i + n] *= length * part;
			} else {
				sums[i + n] = 2 * sums[i + n] - (length + part);
				has_infinite |= length + part == INFINITY;
			}
		}
	}
	if (!has_infinite)
		return;
		/* Where one of them has an infinite number, the product may be NaN, but the distance is
		 * infinite. */
#pragma unroll
	for (int i = 0; i < SUMS; i++) {
		/* Read again, as there are no registers to keep them. */
		float length = hopper::load_shared(hopper::shared_address(lengths + row_of_thread(i) + i % 2));
		float part = q.parts[i / 2 % 2];

		if (length + part == INFINITY && fminf(length, part) < INFINITY)
			sums[i] = -INFINITY;
	}
}

/* Makes NaN of the scores with rows that may not come. row: the tile's first. */
__device__ __forceinline__ void mask_scores(float (&sums)[SUMS], const work &w, const thread_queries &q,
                                            uint32_t row)
{
	uint64_t left = w.rows - row;
	uint32_t first = w.first + row, last_word = (uint32_t)((w.first + w.rows - 1) / 32);

#pragma unroll
	for (int half = 0; half < 2; half++) {
		const uint32_t *bits = w.filter + (int64_t)(q.first + query_of_thread(half)) * w.filter_query;

#pragma unroll
		for (int word = 0; word < ROWS / 32; word++) {
			uint32_t allowed = ~0u, at = first / 32 + word;

			if (w.filter && q.are_there[half] && at <= last_word) {
				uint32_t next = at < last_word ? at + 1 : at;

				allowed = __funnelshift_r(bits[(int64_t)at * w.filter_word],
				                          bits[(int64_t)next * w.filter_word], first % 32);
			}
#pragma unroll
			for (int j = 0; j < 4; j++)
#pragma unroll
				for (int n = 0; n < 2; n++) {
					int i = (word * 4 + j) * 4, of_tile = row_of_thread(i) + n;
					bool may = (uint64_t)of_tile < left && (allowed >> of_tile % 32 & 1);

					if (!may)
						sums[i + half * 2 + n] = NAN;
				}
		}
	}
}

/* ---- Teams ---- */

template <class CUT, typename T>
__device__ __forceinline__ void multiply_tile(float (&sums)[SUMS], row_lengths<CUT, T> &lengths,
                                              const mapped_work &m, const search_memory &memory,
                                              search_ring<CUT> &r, int team)
{
	search_ring<CUT> last = r;

	lengths.start();
#pragma unroll 1
	for (unsigned line = 0; line < m.plan.lines; line++, r.step()) {
		uint32_t q =
		    CUT::KEEPS ? memory.address + line * TEAM * LINE : r.bytes() + (ROWS + team * TEAM) * LINE;

		hopper::barrier_wait(r.full(), r.parity);
		hopper::settle(sums);
		hopper::products_begin();
#pragma unroll
		for (int step = 0; step < LINE / 32; step++)
			hopper::add_products<element_of<T>::E>(sums, hopper::matrix_at<LINE>(q) + step * 2,
			                                       hopper::matrix_at<LINE>(r.bytes()) + step * 2,
			                                       line > 0 || step > 0);
		hopper::products_commit();
		if constexpr (CUT::LENGTHS)
			lengths.add(r.bytes());
		hopper::products_wait<1>();
		__syncwarp();
		if (line > 0)
			last.release();
		last = r;
	}
	hopper::products_wait();
	hopper::settle(sums);
	last.release();
}

/* Puts those that are not below the bounds into the lists. index: of the tile's first row. */
__device__ __forceinline__ void collect(float (&sums)[SUMS], thread_queries &q, query_lists &lists,
                                        uint32_t index)
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

		do {
#pragma unroll
			for (int i = group; i < group + GROUP; i++) {
				int half = i / 2 % 2;

				if (sums[i] >= q.bounds[half] &&
				    lists.add(query_of_thread(half), sums[i],
				              index + (uint32_t)(row_of_thread(i) + i % 2)))
					sums[i] = NAN;
			}
			again = lists.cut();
			has_cut |= again;
			/* Of those that have found no room some may have lower indices. */
			for (int half = 0; again && half < 2; half++)
				if (q.are_there[half])
					q.bounds[half] = lists.bound_of(query_of_thread(half), false);
		} while (again);
	}
	for (int half = 0; has_cut && half < 2; half++)
		if (q.are_there[half])
			q.bounds[half] = lists.bound_of(query_of_thread(half), true);
}

__device__ __forceinline__ void write_lists(const work &w, const query_lists &lists, uint64_t first,
                                            unsigned piece)
{
	__syncwarp();
	for (unsigned query = 0; query < WARP_QUERIES && first + query < w.n_queries; query++) {
		lists.sort(query);
		for (unsigned i = threadIdx.x % WARP; i < w.k; i += WARP)
			w.partials[((first + query) * w.pieces + piece) * w.k + i] = lists.of(query)[i];
	}
	__syncwarp();
}

template <class CUT, typename T>
__device__ __forceinline__ void search_units(const mapped_work &m, search_memory memory, int team)
{
	const work &w = m.w;
	unsigned warp = threadIdx.x / WARP - TEAM_WARPS;
	float *of_rows = (float *)(memory.data + m.room.lengths);
	row_lengths<CUT, T> lengths;
	search_ring<CUT> r(m, memory);
	query_lists lists(m, memory, warp);
	float sums[SUMS];

	if constexpr (CUT::KEEPS)
		hopper::barrier_wait(queries_full(m, memory), 0);
	for (unit_walk<CUT> u(m.plan); u.is_there(); u.step()) {
		lists.start();
		thread_queries q = queries_of<T>(w, u.first_query() + warp * WARP_QUERIES);

		for (unsigned tile = u.piece(); tile < m.plan.tiles; tile += m.plan.pieces) {
			multiply_tile<CUT, T>(sums, lengths, m, memory, r, team);
			if constexpr (CUT::LENGTHS) {
				lengths.share(of_rows, w.metric);
				direct_scores(sums, q, of_rows, w.metric);
			}
			if (w.filter || w.rows - tile * ROWS < ROWS)
				mask_scores(sums, w, q, tile * ROWS);
			collect(sums, q, lists, w.first + tile * ROWS);
		}
		write_lists(w, lists, q.first, u.piece());
	}
}

#endif

/* A block keeps to one multiprocessor. */
template <class CUT, typename T>
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
		if constexpr (CUT::TEAMS > 1)
			hopper::fewer_registers<56>();
		if (threadIdx.x == 0)
			load_tiles<CUT>(m, memory);
	} else {
		if constexpr (CUT::TEAMS > 1)
			hopper::more_registers<216>();
		search_units<CUT, T>(m, memory, warp / TEAM_WARPS - 1);
	}
	/* What others send to this block arrives while it is there. */
	if constexpr (CUT::SHARERS > 1)
		hopper::cluster_sync();
#endif
}

/* ---- Launching ---- */

bool map_view(CUtensorMap *map, const view &v, unsigned rows)
{
	lines l = {v.shape[1], v.shape[0], 1, v.strides[0], 0};

	return map_lines(map, CU_TENSOR_MAP_DATA_TYPE_UINT16, v.data, l, LINE_COLUMNS, rows,
	                 CU_TENSOR_MAP_SWIZZLE_128B);
}

/* Elements of a row side by side, rows at multiples of 16 bytes. */
bool has_mapped_rows(const view *v)
{
	return (uintptr_t)v->data % 16 == 0 && v->offset % 16 == 0 &&
	       (v->shape[1] == 1 || v->strides[1] == 1) && (v->shape[0] == 1 || map_stride(v->strides[0], 2));
}

search_wgmma_plan plan_of(const op_args *args)
{
	return search_wgmma_plan_of(args, (unsigned)gemm_hopper_multiprocessors());
}

template <class CUT, typename T>
int launch_cut(const op_args *args, const search_wgmma_plan &plan, const struct launch *launch)
{
	mapped_work m = {};

	m.w = work_of(args, plan.pieces, launch->workspace);
	m.plan = plan;
	m.room = search_wgmma_room_of(&plan);
	if (!map_view(&m.q, args->views[SEARCH_QUERIES], CUT::TEAMS * TEAM) ||
	    !map_view(&m.base, args->views[SEARCH_BASE], CUT::BOX))
		return KOPS_E_FAULT;
	cudaFuncSetAttribute(search_tiles<CUT, T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
	                     SEARCH_SHARED_MAX);
	launch_kernel(search_tiles<CUT, T>,
	              {dim3(plan.clusters * CUT::SHARERS), dim3(CUT::THREADS), plan.shared_bytes, CUT::SHARERS,
	               cuda_may_be_early(launch)},
	              cuda_stream(launch), m);
	if (m.w.k <= FEW)
		launch_join<FEW>(m.w, cuda_stream(launch));
	else
		launch_join<SEARCH_MAX>(m.w, cuda_stream(launch));
	return cuda_launch_status();
}

template <typename T, bool LENGTHS>
int launch_plan(const op_args *args, const search_wgmma_plan &plan, const struct launch *launch)
{
	if (plan.keeps_queries)
		return launch_cut<search_cut<1, 1, true, LENGTHS>, T>(args, plan, launch);
	return plan.sharers > 1 ? launch_cut<search_cut<2, 2, false, LENGTHS>, T>(args, plan, launch)
	                        : launch_cut<search_cut<2, 1, false, LENGTHS>, T>(args, plan, launch);
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
	const view *q = &args->views[SEARCH_QUERIES], *base = &args->views[SEARCH_BASE];

	*ret_why_not = "takes f16 and bf16";
	if (dtype_size(q->dtype) != 2)
		return false;
	*ret_why_not = "takes k up to 64";
	if (search_count(args) > SEARCH_WGMMA_MOST)
		return false;
	*ret_why_not = "takes from 1 to 4096 columns";
	if (q->shape[1] == 0 || q->shape[1] > SEARCH_LINE_MAX * LINE_COLUMNS)
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
