/* load.cuh: how one thread has the copy engine bring tiles of q, k and v. */
#ifndef KOPS_KERNELS_ATTENTION_WGMMA_LOAD_H
#define KOPS_KERNELS_ATTENTION_WGMMA_LOAD_H

#include "attention/wgmma/form.cuh"
#include "common/hopper/shared.cuh"
#include "common/hopper/tma.cuh"

namespace
{

#ifdef KOPS_HOPPER

/* ---- The loader: one thread ---- */

template <int PANELS, int PANEL>
__device__ __forceinline__ void fetch_tile(uint32_t to, const CUtensorMap *map, int row, int head, int batch,
                                           uint32_t barrier)
{
#pragma unroll
	for (int panel = 0; panel < PANELS; panel++)
		hopper::copy_box(to + panel * PANEL, map, panel * LINE_COLUMNS, row, head, batch, barrier);
}

/* Tells the teams a tile with its length, and brings their queries if there is one. */
template <class CUT>
__device__ __forceinline__ void load_queries(const wgmma_work &w, attention_memory<CUT> memory, unsigned number,
                                             const attention_tile &t, unsigned stage, unsigned parity)
{
#pragma unroll 1
	for (int team = 0; team < CUT::TEAMS; team++) {
		q_ring<CUT> q = memory.ring_of_q(team);

		q.stage = stage, q.parity = parity;
		q.await_empty();
		hopper::store_shared(memory.number(team, stage), __uint_as_float(number));
		if (CUT::HAS_MORE)
			hopper::store_shared(memory.length(team, stage), __uint_as_float((unsigned)t.length));
		if (number >= w.tiles) {
			hopper::barrier_arrive(q.full());
			continue;
		}
		hopper::barrier_expect(q.full(), CUT::Q_BYTES);
		fetch_tile<CUT::PANELS, CUT::Q_PANEL>(q.tile(), &w.q, t.row + team * TEAM_ROWS, t.head, t.batch,
		                                      q.full());
	}
}

/* What the loader goes through. */
template <class CUT> struct loader {
	const wgmma_work &w;
	attention_memory<CUT> memory;
	keys_ring<CUT> k, v;
	unsigned number, next; /* of this tile and the next one */
	int length, next_length;
	unsigned q_stage, q_parity;

	__device__ __forceinline__ int length_of_tile(unsigned tile) const
	{
		return CUT::HAS_MORE && w.lengths && tile < w.tiles ? length_of(w, place_of<CUT>(w, tile).batch)
		                                                    : 0;
	}
	__device__ __forceinline__ void load_queries_of(unsigned tile, int length_of_it)
	{
		attention_tile t = tile < w.tiles ? place_of<CUT>(w, tile) : attention_tile();

		t.length = length_of_it;
		load_queries<CUT>(w, memory, tile, t, q_stage, q_parity);
		if (++q_stage == CUT::Q_STAGES)
			q_stage = 0, q_parity ^= 1;
	}
	__device__ __forceinline__ void load_queries_in_turn()
	{
		if (CUT::LOOKS_AHEAD)
			next_length = length_of_tile(next);
		load_queries_of(CUT::LOOKS_AHEAD ? next : number, CUT::LOOKS_AHEAD ? next_length : length);
	}
};

/* Before which tile of keys there is surely room for queries: those of the next tile come as early as that, for
 * otherwise the teams would wait for them behind the last values. */
template <class CUT> __device__ __forceinline__ int queries_before(const wgmma_keys &keys)
{
	int n = keys.end - 1 - (CUT::LOOKS_AHEAD ? CUT::STAGES : 0);

	return n > keys.begin ? n : keys.begin;
}

/* A tile's keys and values, which are needed a step later. */
template <class CUT> __device__ __forceinline__ void load_keys(loader<CUT> &l, const attention_tile &t)
{
	const wgmma_work &w = l.w;
	int head = (t.head + (int)w.first_head) / (int)w.group;

#pragma unroll 1
	for (int n = t.keys.end - 1; n >= t.keys.begin - 1; n--) {
		if (n >= t.keys.begin) {
			l.k.await_empty();
			hopper::barrier_expect(l.k.full(), CUT::KEYS_BYTES);
			fetch_tile<CUT::PANELS, CUT::KEYS_PANEL>(l.k.tile(), &w.k, n * CUT::KEYS, head, t.batch,
			                                         l.k.full());
			l.k.step();
		}
		if (n == queries_before<CUT>(t.keys))
			l.load_queries_in_turn();
		if (n + 1 < t.keys.end) {
			l.v.await_empty();
			hopper::barrier_expect(l.v.full(), CUT::KEYS_BYTES);
			fetch_tile<CUT::PANELS, CUT::KEYS_PANEL>(l.v.tile(), &w.v, (n + 1) * CUT::KEYS, head,
			                                         t.batch, l.v.full());
			l.v.step();
		}
	}
}

template <class CUT>
__device__ __forceinline__ void load_tiles(const wgmma_work &w, attention_memory<CUT> memory)
{
	loader<CUT> l = {w, memory, memory.ring_of_k(), memory.ring_of_v(), blockIdx.x, 0, 0, 0, 0, 0};

	l.length = l.length_of_tile(l.number);
	if (CUT::LOOKS_AHEAD)
		l.load_queries_of(l.number, l.length);
	while (l.number < w.tiles) {
		attention_tile t = tile_at<CUT>(w, l.number, l.length);

		l.next = w.taken ? gridDim.x + atomicAdd(w.taken, 1u) : l.number + gridDim.x;
		if (t.sees_keys())
			load_keys<CUT>(l, t);
		else
			l.load_queries_in_turn();
		l.number = l.next;
		l.length = CUT::LOOKS_AHEAD ? l.next_length : l.length_of_tile(l.number);
	}
	if (!CUT::LOOKS_AHEAD)
		l.load_queries_of(l.number, 0); /* there are none: this ends the teams' work */
}

#endif

} // namespace

#endif
