/* team.cuh: what a team does with its rows of a tile, and from tile to tile. */
#ifndef KOPS_KERNELS_ATTENTION_WGMMA_TEAM_H
#define KOPS_KERNELS_ATTENTION_WGMMA_TEAM_H

#include "attention/wgmma/weigh.cuh"
#include "common/hopper/shared.cuh"
#include "common/hopper/tma.cuh"

namespace
{

#ifdef KOPS_HOPPER

/*
 * to = from, by a detour that ptxas does not see through: it would make the new weights in the registers of
 * those that products still read, and let these wait for each other.
 */
template <class CUT>
__device__ __forceinline__ void take_weights(tile_weights<CUT> &to, const tile_weights<CUT> &from,
                                             uint32_t none)
{
#pragma unroll
	for (int i = 0; i < CUT::KEY_STEPS * 4; i++)
		to[i / 4][i % 4] = from[i / 4][i % 4] ^ none;
}

/* ---- Turns ---- */

/* Named barriers: a team's own, and that of its turn. Turns go round: a team begins its products, and lets the
 * next one begin. */
constexpr int TEAM_BARRIER = 1, TURN_BARRIER = 4;

template <class CUT> __device__ __forceinline__ void await_turn(int team)
{
	hopper::threads_sync<2 * TEAM_THREADS>(TURN_BARRIER + team);
}

template <class CUT> __device__ __forceinline__ void end_turn(int team)
{
	hopper::threads_arrive<2 * TEAM_THREADS>(TURN_BARRIER + (team + 1 == CUT::TEAMS ? 0 : team + 1));
}

/* ---- A team's rows ---- */

template <class CUT> __device__ __forceinline__ void clear_sums(team_rows<CUT> &r)
{
#pragma unroll
	for (int i = 0; i < CUT::SUMS; i++)
		r.sums[i] = 0;
}

/* What a team reads from: the stages that are next. */
template <class CUT> struct team_tiles {
	const wgmma_work &w;
	keys_ring<CUT> k, v;
	q_ring<CUT> q;
	int team;

	__device__ __forceinline__ int row(const attention_tile &t) const
	{
		int thread = (int)threadIdx.x % TEAM_THREADS;

		return t.row + team * TEAM_ROWS + thread / 32 * 16 + thread % 32 / 4;
	}
};

/* Computes the scores of the first tile of keys. */
template <class CUT, class T>
__device__ __forceinline__ void begin_scores(team_tiles<CUT> &s, team_rows<CUT> &r)
{
	s.k.await_full();
	multiply_keys<CUT, element_of<T>::E>(r, s.q.tile(), s.k.tile());
	hopper::products_wait();
	hopper::settle(r.scores);
	s.k.release();
}

/* Weighs tile n while the values of the one before are added. */
template <class CUT, class T, bool MASKED>
__device__ __forceinline__ void step_rows(team_tiles<CUT> &s, team_rows<CUT> &r, const attention_tile &t, int n,
                                          tile_weights<CUT> &weights)
{
	tile_weights<CUT> next;
	float down[2];

	s.k.await_full();
	s.v.await_full();
	await_turn<CUT>(s.team);
	multiply_keys<CUT, element_of<T>::E>(r, s.q.tile(), s.k.tile());
	add_values<CUT, element_of<T>::E>(r, weights, s.v.tile());
	end_turn<CUT>(s.team);
	hopper::products_wait<1>();
	hopper::settle(r.scores);
	s.k.release();
	if (MASKED)
		mask_scores<CUT>(r, rule_for<CUT>(s.w, t.length), s.row(t), n * CUT::KEYS);
	bool anew = weigh<CUT, T>(r, next, s.w.factor, down);
	hopper::products_wait();
	hopper::settle(r.sums);
	s.v.release();
	take_weights<CUT>(weights, next, s.w.none);
	if (anew)
		scale_sums<CUT>(r.sums, down);
}

/* Weighs the first tile of keys, whose scores are there. */
template <class CUT, class T>
__device__ __forceinline__ void begin_rows(const team_tiles<CUT> &s, team_rows<CUT> &r, const attention_tile &t,
                                           tile_weights<CUT> &weights)
{
	int n = t.keys.end - 1;

	if (n >= t.keys.plain_end || n < t.keys.plain_begin)
		mask_scores<CUT>(r, rule_for<CUT>(s.w, t.length), s.row(t), n * CUT::KEYS);
	weigh_first<CUT, T>(r, weights, s.w.factor);
}

/* The other tiles of keys; the values of the last are left to be added. */
template <class CUT, class T>
__device__ __forceinline__ void attend(team_tiles<CUT> &s, team_rows<CUT> &r, const attention_tile &t,
                                       tile_weights<CUT> &weights)
{
	int n = t.keys.end - 1;

#pragma unroll 1
	for (n--; n >= t.keys.begin && n >= t.keys.plain_end; n--)
		step_rows<CUT, T, true>(s, r, t, n, weights);
#pragma unroll 1
	for (; n >= t.keys.begin && n >= t.keys.plain_begin; n--)
		step_rows<CUT, T, false>(s, r, t, n, weights);
#pragma unroll 1
	for (; n >= t.keys.begin; n--)
		step_rows<CUT, T, true>(s, r, t, n, weights);
}

/* Writes the logarithms of the rows' sums, if they are wanted; they are complete before the last values are
 * added. */
template <class CUT>
__device__ __forceinline__ void write_lse(const team_tiles<CUT> &s, const team_rows<CUT> &r,
                                          const attention_tile &t)
{
	const float ln_2 = 0.69314718f;
	const wgmma_work &w = s.w;

	if (!w.lse)
		return;
#pragma unroll
	for (int half = 0; half < 2; half++) {
		float total = t.sees_keys() ? sum_of_lanes(r.total[half]) : 0;
		int row = s.row(t) + half * 8;

		if (threadIdx.x % 4 == 0 && row < w.queries)
			w.lse[t.batch * w.lse_strides[0] + t.head * w.lse_strides[1] + row * w.lse_strides[2]] =
			    total == 0 ? -INFINITY : r.peak[half] * ln_2 + logf(total);
	}
}

/* Adds the values of the last tile, if there is one. */
template <class CUT, class T>
__device__ __forceinline__ void end_rows(team_tiles<CUT> &s, team_rows<CUT> &r, const attention_tile &t,
                                         tile_weights<CUT> &weights)
{
	if (!t.sees_keys()) {
		r.total[0] = r.total[1] = 0;
		return;
	}
	s.v.await_full();
	await_turn<CUT>(s.team);
	add_values<CUT, element_of<T>::E>(r, weights, s.v.tile());
	end_turn<CUT>(s.team);
	hopper::products_wait();
	hopper::settle(r.sums);
	s.v.release();
}

/* The team's rows go where its queries were, and from there to o. */
template <class CUT, class T>
__device__ __forceinline__ void write_rows(team_tiles<CUT> &s, float (&sums)[CUT::SUMS],
                                           const float (&totals)[2], const attention_tile &t)
{
	const T *type = nullptr;
	int thread = (int)threadIdx.x % TEAM_THREADS, lane = thread % 32;
	uint32_t tile = s.q.tile(), line = tile + (thread / 32 * 16 + lane % 16) * LINE_BYTES;
	float by[2];

#pragma unroll
	for (int half = 0; half < 2; half++) {
		float total = sum_of_lanes(totals[half]);
		by[half] = total == 0 ? 0 : 1 / total;
	}
	scale_sums<CUT>(sums, by);
	hopper::threads_sync<TEAM_THREADS>(TEAM_BARRIER + s.team); /* all have read their queries */
#pragma unroll
	for (int i = 0; i < CUT::SUMS; i += 8) {
		const float *v = sums + i;
		const uint32_t pairs[4] = {pack_pair(type, v[0], v[1]), pack_pair(type, v[2], v[3]),
		                           pack_pair(type, v[4], v[5]), pack_pair(type, v[6], v[7])};
		int panel = i / 32, piece = i % 32 / 4 + lane / 16;
		hopper::store_matrices(line + panel * CUT::Q_PANEL + (piece ^ lane % 8) * 16, pairs);
	}
	hopper::show_to_engines();
	hopper::threads_sync<TEAM_THREADS>(TEAM_BARRIER + s.team);
	if (thread == 0) {
		int row = t.row + s.team * TEAM_ROWS;
		if (row < s.w.queries) {
#pragma unroll
			for (int panel = 0; panel < CUT::PANELS; panel++)
				hopper::store_box(&s.w.o, panel * LINE_COLUMNS, row, t.head, t.batch,
				                  tile + panel * CUT::Q_PANEL);
			hopper::stores_commit();
			hopper::stores_await_read<0>();
		}
	}
	s.q.release();
}

/* As end_rows(), and writes the rows. Meanwhile it begins the next tile, whose queries are at next_q. */
template <class CUT, class T>
__device__ __forceinline__ void end_and_begin_rows(team_tiles<CUT> &s, team_rows<CUT> &r,
                                                   const attention_tile &t, const attention_tile &next,
                                                   uint32_t next_q, tile_weights<CUT> &weights)
{
	tile_weights<CUT> next_weights;
	float totals[2] = {r.total[0], r.total[1]};

	s.k.await_full();
	s.v.await_full();
	await_turn<CUT>(s.team);
	multiply_keys<CUT, element_of<T>::E>(r, next_q, s.k.tile());
	add_values<CUT, element_of<T>::E>(r, weights, s.v.tile());
	end_turn<CUT>(s.team);
	hopper::products_wait<1>();
	hopper::settle(r.scores);
	s.k.release();
	begin_rows<CUT, T>(s, r, next, next_weights);
	hopper::products_wait();
	hopper::settle(r.sums);
	s.v.release();
	take_weights<CUT>(weights, next_weights, s.w.none);
	write_rows<CUT, T>(s, r.sums, totals, t);
	clear_sums<CUT>(r);
}

/* The number of the next tile, whose queries are there then. */
template <class CUT>
__device__ __forceinline__ unsigned await_number(const attention_memory<CUT> &memory, const q_ring<CUT> &q,
                                                 int team)
{
	unsigned number = 0;

	q.await_full();
	if (threadIdx.x % 32 == 0) /* it also releases the stage */
		number = __float_as_uint(hopper::load_shared(memory.number(team, q.stage)));
	return __shfl_sync(~0u, number, 0);
}

/* The tile of this number, whose queries are there. */
template <class CUT>
__device__ __forceinline__ attention_tile take_tile(const wgmma_work &w, const attention_memory<CUT> &memory,
                                                    const q_ring<CUT> &q, int team, unsigned number)
{
	unsigned length = 0;

	if (CUT::HAS_MORE && w.lengths) {
		if (threadIdx.x % 32 == 0)
			length = __float_as_uint(hopper::load_shared(memory.length(team, q.stage)));
		length = __shfl_sync(~0u, length, 0);
	}
	return tile_at<CUT>(w, number, (int)length);
}

template <class CUT, class T>
__device__ __forceinline__ void attend_tiles(const wgmma_work &w, attention_memory<CUT> memory, int team)
{
	team_tiles<CUT> s = {w, memory.ring_of_k(), memory.ring_of_v(), memory.ring_of_q(team), team};

	if (team == 0)
		hopper::threads_arrive<2 * TEAM_THREADS>(TURN_BARRIER);
	unsigned number = await_number<CUT>(memory, s.q, team);
	team_rows<CUT> r;
	tile_weights<CUT> weights;
	bool is_begun = false;

	clear_sums<CUT>(r);
	while (number < w.tiles) {
		attention_tile t = take_tile<CUT>(w, memory, s.q, team, number);

		if (!is_begun && t.sees_keys()) {
			begin_scores<CUT, T>(s, r);
			begin_rows<CUT, T>(s, r, t, weights);
		}
		attend<CUT, T>(s, r, t, weights);
		if constexpr (CUT::HAS_MORE)
			write_lse<CUT>(s, r, t);
		if constexpr (CUT::LOOKS_AHEAD) {
			q_ring<CUT> next_q = s.q;

			next_q.step();
			number = await_number<CUT>(memory, next_q, team);
			attention_tile next = number < w.tiles ? take_tile<CUT>(w, memory, next_q, team, number)
			                                       : attention_tile();
			is_begun = t.sees_keys() && next.sees_keys();
			if (is_begun) {
				end_and_begin_rows<CUT, T>(s, r, t, next, next_q.tile(), weights);
				continue;
			}
		}
		end_rows<CUT, T>(s, r, t, weights);
		write_rows<CUT, T>(s, r.sums, r.total, t);
		clear_sums<CUT>(r);
		if constexpr (!CUT::LOOKS_AHEAD)
			number = await_number<CUT>(memory, s.q, team);
	}
	if (team == 0)
		await_turn<CUT>(team);
}

#endif

} // namespace

#endif
