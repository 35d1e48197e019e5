/* form.cuh: what the kernel `wgmma` is compiled for, what it gets, and its stages in shared memory. */
#ifndef KOPS_KERNELS_ATTENTION_WGMMA_FORM_H
#define KOPS_KERNELS_ATTENTION_WGMMA_FORM_H

#include <cuda.h>

#include "attention/wgmma_plan.h"
#include "common/hopper/barrier.cuh"
#include "common/hopper/tma.cuh"
#include "common/hopper/wgmma.cuh"

namespace
{

constexpr int TEAM_ROWS = 64, TEAM_THREADS = 128, TEAM_WARPS = TEAM_THREADS / 32;
constexpr int LINE_BYTES = 128, LINE_COLUMNS = LINE_BYTES / 2;

/*
 * DEPTH: head_dim, padded. TEAMS of 64 queries; tiles of KEYS, for which there are STAGES. Q_STAGES: two, for
 * the queries of the next tile beside those of this one, or one where there is no room for more. STEP_NS,
 * TILE_NS: what a tile of keys takes, and what else a tile.
 */
template <int DEPTH_, int KEYS_, int TEAMS_, int STAGES_, int Q_STAGES_, int STEP_NS_, int TILE_NS_>
struct attention_cut {
	static constexpr int DEPTH = DEPTH_, KEYS = KEYS_, TEAMS = TEAMS_, STAGES = STAGES_,
	                     Q_STAGES = Q_STAGES_;
	static constexpr bool LOOKS_AHEAD = Q_STAGES > 1; /* begins a tile before it ends the one before */
	static constexpr bool HAS_MORE = false;           /* lengths or lse */
	static constexpr int STEP_NS = STEP_NS_, TILE_NS = TILE_NS_; /* on an H200 */
	static constexpr int ROWS = TEAMS * TEAM_ROWS, THREADS = (1 + TEAMS) * TEAM_THREADS;
	static constexpr int PANELS = DEPTH / LINE_COLUMNS; /* of a tile: lines of 128 bytes */
	static constexpr int SCORES = KEYS / 2, SUMS = DEPTH / 2, KEY_STEPS = KEYS / 16;
	static constexpr int Q_PANEL = TEAM_ROWS * LINE_BYTES, KEYS_PANEL = KEYS * LINE_BYTES;
	static constexpr int Q_BYTES = PANELS * Q_PANEL, KEYS_BYTES = PANELS * KEYS_PANEL;
	static constexpr int BARRIERS = 2 * (Q_STAGES * TEAMS + 2 * STAGES);
	static constexpr int SHARED_BYTES =
	    Q_STAGES * TEAMS * Q_BYTES + 2 * STAGES * KEYS_BYTES + (BARRIERS + Q_STAGES * TEAMS) * 8 + 1024;
	static constexpr int LOADER_REGISTERS = TEAMS == 2 ? 24 : 32, TEAM_REGISTERS = TEAMS == 2 ? 240 : 160;
	static_assert(DEPTH % LINE_COLUMNS == 0 && KEYS % 16 == 0 && SHARED_BYTES <= 227 * 1024);
};

/* The same with lengths or lse, whose branches cost the others up to a tenth. */
template <class CUT> struct cut_with_more : CUT {
	static constexpr bool HAS_MORE = true;
};

/*
 * What the kernel gets. A unit is a head of a batch. Tiles of `section` units go side by side, as many as L2
 * holds the keys and values of; those with the most keys first.
 */
struct wgmma_work {
	CUtensorMap q, k, v, o;
	attention_rule rule;
	uint32_t none; /* 0: see take_weights() */
	float factor;  /* of scores, log2(e) included; positive */
	int queries;
	unsigned heads, first_head, group; /* group: heads that share one of k and v, from first_head on */
	unsigned units, row_tiles, section, tiles;
	const int32_t *lengths; /* NULL: all keys count */
	int64_t lengths_apart;
	float *lse; /* NULL: not wanted */
	int64_t lse_strides[3];
	unsigned
	    *taken; /* tiles that blocks took after their first; NULL: each takes those at equal distances */
};

#ifdef KOPS_HOPPER

/* Where a tile lies. length: of its batch, if w.lengths. */
struct attention_tile {
	int batch, head, row, length;
	wgmma_keys keys;

	__device__ __forceinline__ bool sees_keys() const
	{
		return keys.begin < keys.end;
	}
};

/* Only the loader reads a length, once, and tells it the teams: a client may write it meanwhile. */
__device__ __forceinline__ int length_of(const wgmma_work &w, int batch)
{
	return w.lengths ? w.lengths[batch * w.lengths_apart] : 0;
}

template <class CUT> __device__ __forceinline__ attention_rule rule_for(const wgmma_work &w, int length)
{
	return CUT::HAS_MORE && w.lengths ? attention_rule_for(w.rule, length) : w.rule;
}

/* Without its keys. */
template <class CUT> __device__ __forceinline__ attention_tile place_of(const wgmma_work &w, unsigned number)
{
	unsigned in_section = w.section * w.row_tiles, first = number / in_section * w.section;
	unsigned rest = number % in_section, beside = w.units - first < w.section ? w.units - first : w.section;
	unsigned unit = first + rest % beside;
	attention_tile t = {};

	t.batch = (int)(unit / w.heads);
	t.head = (int)(unit % w.heads);
	t.row = (int)(w.row_tiles - 1 - rest / beside) * CUT::ROWS;
	return t;
}

template <class CUT>
__device__ __forceinline__ attention_tile tile_at(const wgmma_work &w, unsigned number, int length)
{
	attention_tile t = place_of<CUT>(w, number);
	attention_rule rule = rule_for<CUT>(w, length);
	int last = t.row + CUT::ROWS < w.queries ? t.row + CUT::ROWS - 1 : w.queries - 1;

	t.length = length;
	t.keys = wgmma_keys_of(&rule, t.row, last, CUT::KEYS);
	return t;
}

/* Stages that one side fills and the other empties, one after the other. */
template <int STAGES, int BYTES> struct tile_ring {
	uint32_t tiles, barriers;
	unsigned stage = 0, parity = 0;

	__device__ __forceinline__ tile_ring(uint32_t tiles, uint32_t barriers)
	    : tiles(tiles), barriers(barriers)
	{
	}
	__device__ __forceinline__ uint32_t full() const
	{
		return barriers + stage * 8;
	}
	__device__ __forceinline__ uint32_t empty() const
	{
		return barriers + (STAGES + stage) * 8;
	}
	__device__ __forceinline__ uint32_t tile() const
	{
		return tiles + stage * BYTES;
	}
	__device__ __forceinline__ void step()
	{
		if (++stage == STAGES)
			stage = 0, parity ^= 1;
	}
	__device__ void init(unsigned releases)
	{
		for (int i = 0; i < STAGES; i++, step()) {
			hopper::barrier_init(full(), 1);
			hopper::barrier_init(empty(), releases);
		}
	}
	__device__ __forceinline__ void await_full() const
	{
		hopper::barrier_wait(full(), parity);
	}
	__device__ __forceinline__ void await_empty() const
	{
		hopper::barrier_wait(empty(), parity ^ 1);
	}
	/* Once in each warp. */
	__device__ __forceinline__ void release()
	{
		if (threadIdx.x % 32 == 0)
			hopper::barrier_arrive(empty());
		step();
	}
};

template <class CUT> using q_ring = tile_ring<CUT::Q_STAGES, CUT::Q_BYTES>;
template <class CUT> using keys_ring = tile_ring<CUT::STAGES, CUT::KEYS_BYTES>;

/* Shared memory. */
template <class CUT> struct attention_memory {
	uint32_t q, k, v, barriers;

	__device__ explicit attention_memory(uint32_t shared)
	    : q((shared + 1023) & ~1023u), k(q + CUT::TEAMS * CUT::Q_STAGES * CUT::Q_BYTES),
	      v(k + CUT::STAGES * CUT::KEYS_BYTES), barriers(v + CUT::STAGES * CUT::KEYS_BYTES)
	{
	}
	__device__ __forceinline__ keys_ring<CUT> ring_of_k() const
	{
		return {k, barriers};
	}
	__device__ __forceinline__ keys_ring<CUT> ring_of_v() const
	{
		return {v, barriers + 2 * CUT::STAGES * 8};
	}
	__device__ __forceinline__ q_ring<CUT> ring_of_q(int team) const
	{
		return {q + team * CUT::Q_STAGES * CUT::Q_BYTES,
		        barriers + (4 * CUT::STAGES + team * 2 * CUT::Q_STAGES) * 8};
	}
	__device__ __forceinline__ void init(const wgmma_work &w) const
	{
		hopper::prefetch_map(&w.q);
		hopper::prefetch_map(&w.k);
		hopper::prefetch_map(&w.v);
		ring_of_k().init(CUT::TEAMS * TEAM_WARPS);
		ring_of_v().init(CUT::TEAMS * TEAM_WARPS);
		for (int team = 0; team < CUT::TEAMS; team++)
			ring_of_q(team).init(TEAM_WARPS);
		hopper::barriers_ready();
	}
	/* The number of the tile whose queries are in a stage, and the length of its batch. */
	__device__ __forceinline__ uint32_t number(int team, unsigned stage) const
	{
		return barriers + (CUT::BARRIERS + team * CUT::Q_STAGES + stage) * 8;
	}
	__device__ __forceinline__ uint32_t length(int team, unsigned stage) const
	{
		return number(team, stage) + 4;
	}
};

#endif

} // namespace

#endif
