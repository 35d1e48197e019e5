/* form.cuh: what kernels of search by wgmma are compiled for, their stages in shared memory, and who fills
 * them. */
#ifndef KOPS_KERNELS_SEARCH_WGMMA_FORM_H
#define KOPS_KERNELS_SEARCH_WGMMA_FORM_H

#include "common/hopper/barrier.cuh"
#include "common/hopper/cluster.cuh"
#include "common/hopper/shared.cuh"
#include "common/hopper/tma.cuh"
#include "common/hopper/wgmma.cuh"
#include "gemm/map.cuh"
#include "search/wgmma_plan.h"
#include "search/work.cuh"

namespace
{

constexpr int TEAM = SEARCH_TEAM, ROWS = SEARCH_ROWS, LINE = SEARCH_LINE;
constexpr int WARPGROUP = 128, SUMS = ROWS / 2, GROUP = 16; /* GROUP: sums of a thread between two looks */
constexpr int LENGTHS_BARRIER = 1, TURN_BARRIER = 3;        /* named ones: one for each turn */
constexpr int TEAM_WARPS = WARPGROUP / 32, WARP_QUERIES = TEAM / TEAM_WARPS;

/* KEPT, TURNS: as in search_wgmma_plan. LENGTHS: of rows and queries are needed. */
template <int TEAMS_, int SHARERS_, int TURNS_, int KEPT_, bool LENGTHS_> struct search_cut {
	static constexpr int TEAMS = TEAMS_, SHARERS = SHARERS_, TURNS = TURNS_, KEPT = KEPT_,
	                     THREADS = (1 + TEAMS * TURNS) * WARPGROUP;
	static constexpr bool LENGTHS = LENGTHS_;
	static constexpr int BOX = ROWS / SHARERS; /* rows of a tile that a block brings */
	static constexpr int STAGE_BYTES = (ROWS + (KEPT ? 0 : TEAMS * TEAM)) * LINE;
};

struct mapped_work {
	CUtensorMap q, base;
	work w;
	search_wgmma_plan plan;
	search_wgmma_room room;
	/* Of the kernel `refine`. */
	search_doubts doubts;
	float off; /* how far products may be off, relative to both lengths */
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
	__device__ __forceinline__ void skip(unsigned lines)
	{
		for (; lines > 0; lines--)
			step();
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
	if constexpr (!CUT::KEPT)
		hopper::copy_box(r.bytes() + ROWS * LINE, &m.q, column, query, 0, r.full());
}

template <class CUT, typename T>
__device__ __forceinline__ void load_tiles(const mapped_work &m, search_memory memory)
{
	constexpr int COLUMNS = LINE / (int)sizeof(T);
	search_ring<CUT> r(m, memory);

	if constexpr (CUT::KEPT > 0) {
		uint32_t full = queries_full(m, memory);

		hopper::barrier_expect(full, m.plan.lines * CUT::KEPT * LINE);
		for (unsigned line = 0; line < m.plan.lines; line++)
			hopper::copy_box(memory.address + line * CUT::KEPT * LINE, &m.q, (int)line * COLUMNS, 0,
			                 0, full);
	}
	for (unit_walk<CUT> u(m.plan); u.is_there(); u.step())
		for (unsigned tile = u.piece(); tile < m.plan.tiles; tile += m.plan.pieces)
#pragma unroll 1
			for (unsigned line = 0; line < m.plan.lines; line++, r.step()) {
				hopper::barrier_wait(r.empty(), r.parity ^ 1);
				fetch_stage<CUT>(m, r, (int)u.first_query(), (int)(tile * ROWS),
				                 (int)line * COLUMNS);
			}
}

#endif

} // namespace

#endif
