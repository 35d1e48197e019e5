/*
 * kernel.cuh: attention of f32 by products of pairs of f16.
 *
 * Blocks, tiles and the thread that loads are those of wgmma/kernel.cuh. A team multiplies a tile of keys:
 * low · high, high · low, and high · high. It makes weights of the scores, relative to the largest of this tile
 * and row, and splits them into pairs too. The products of these with a tile of values begin at zero: tensor
 * cores truncate, and long sums would drift. They are added to sums in registers, where the scales are undone.
 * Teams take turns: while one adds and weighs, the other one multiplies values, and the keys of the next tile.
 */
#ifndef KOPS_KERNELS_ATTENTION_F16X3_KERNEL_H
#define KOPS_KERNELS_ATTENTION_F16X3_KERNEL_H

#include "attention/f16x3/found.cuh"
#include "attention/problem.cuh"
#include "attention/wgmma/load.cuh"
#include "attention/wgmma/team.cuh"
#include "common/overlap.cuh"

namespace
{

/* A row has high halves and low ones, so tiles are twice as wide as DEPTH. */
template <int DEPTH_, int KEYS_, int STAGES_, int STEP_NS_, int TILE_NS_>
struct pairs_cut : attention_cut<2 * DEPTH_, KEYS_, 2, STAGES_, 1, STEP_NS_, TILE_NS_> {
	static constexpr bool HAS_MORE = true;
	static constexpr int COLUMNS = DEPTH_, COLUMN_PANELS = DEPTH_ / LINE_COLUMNS, SUMS = DEPTH_ / 2;
};

/* factors: what undoes the scales of rows of q, tiles of k, columns in tiles of v (split.cuh). */
struct pairs_work : wgmma_work {
	tensor to;
	int values;
	unsigned key_heads, key_tiles;
	const float *q_factors, *k_factors, *v_factors;
	split_found *found;
};

#ifdef KOPS_HOPPER

/* Weights of a tile, as products take them. */
template <class CUT> struct pair_weights {
	uint32_t high[CUT::KEY_STEPS][4], low[CUT::KEY_STEPS][4];
};

/* Begins the products of the team's queries with a tile of keys. */
template <class CUT> __device__ __forceinline__ void multiply_pairs(team_rows<CUT> &r, uint32_t q, uint32_t k)
{
	constexpr int Q_LOW = CUT::COLUMN_PANELS * CUT::Q_PANEL, K_LOW = CUT::COLUMN_PANELS * CUT::KEYS_PANEL;

	hopper::settle(r.scores);
	hopper::products_begin();
#pragma unroll
	for (int term = 0; term < 3; term++)
#pragma unroll
		for (int step = 0; step < CUT::COLUMNS / 16; step++) {
			uint32_t of_q = q + step / 4 * CUT::Q_PANEL + (term == 0 ? Q_LOW : 0);
			uint32_t of_k = k + step / 4 * CUT::KEYS_PANEL + (term == 1 ? K_LOW : 0);
			int piece = step % 4 * 2;

			hopper::add_products<hopper::element::F16>(
			    r.scores, hopper::matrix_at<LINE_BYTES>(of_q) + piece,
			    hopper::matrix_at<LINE_BYTES>(of_k) + piece, term + step > 0);
		}
	hopper::products_commit();
}

/* Begins: added = the products of weights with a tile of values. */
template <class CUT>
__device__ __forceinline__ void multiply_values(float (&added)[CUT::SUMS], pair_weights<CUT> &weights,
                                                uint32_t v)
{
	constexpr int LOW = CUT::COLUMN_PANELS * CUT::KEYS_PANEL;

	hopper::settle(added);
#pragma unroll
	for (int step = 0; step < CUT::KEY_STEPS; step++) {
		hopper::settle(weights.high[step]);
		hopper::settle(weights.low[step]);
	}
	hopper::products_begin();
#pragma unroll
	for (int term = 0; term < 3; term++)
#pragma unroll
		for (int step = 0; step < CUT::KEY_STEPS; step++)
			hopper::add_products_from<hopper::element::F16, true>(
			    added, term == 0 ? weights.low[step] : weights.high[step],
			    hopper::matrix_across_at(v + (term == 1 ? LOW : 0), CUT::KEYS_PANEL) +
			        step * 16 * LINE_BYTES / 16,
			    term + step > 0);
	hopper::products_commit();
}

/* x, y = high + low, as pairs. */
__device__ __forceinline__ void split_pair(float x, float y, uint32_t &high, uint32_t &low)
{
	const __half *type = nullptr;
	high = pack_pair(type, x, y);
	float2 rounded = __half22float2(*(const __half2 *)&high);

	low = pack_pair(type, x - rounded.x, y - rounded.y);
}

/* A tile's weights are relative to base: 2^14 times the exponential of its largest score. */
struct tile_base {
	float base[2], sum[2];
};

template <class CUT>
__device__ __forceinline__ tile_base weigh_pairs(const team_rows<CUT> &r, pair_weights<CUT> &weights,
                                                 const float (&factor)[2])
{
	const float lift = 14;
	tile_base t;
	float subtract[2];

#pragma unroll
	for (int half = 0; half < 2; half++) {
		float peak = r.scores[half * 2];

#pragma unroll
		for (int j = 0; j < CUT::SCORES; j += 4)
			peak = fmaxf(peak, fmaxf(r.scores[j + half * 2], r.scores[j + half * 2 + 1]));
		t.base[half] = peak_of_lanes(peak) * factor[half] - lift;
		subtract[half] = t.base[half] == -INFINITY ? 0 : t.base[half];
		t.sum[half] = 0;
	}
#pragma unroll
	for (int i = 0; i < CUT::SCORES / 2; i++) {
		int half = i % 2;
		float x = exp2_fast(r.scores[i * 2] * factor[half] - subtract[half]),
		      y = exp2_fast(r.scores[i * 2 + 1] * factor[half] - subtract[half]);

		t.sum[half] += x + y;
		split_pair(x, y, weights.high[i / 4][i % 4], weights.low[i / 4][i % 4]);
	}
	return t;
}

/* Adds what a tile gave. factors: of this thread's columns of v. */
template <class CUT>
__device__ __forceinline__ void add_tile(team_rows<CUT> &r, const tile_base &t, const float (&added)[CUT::SUMS],
                                         const float *factors)
{
	float down[2], up[2];

#pragma unroll
	for (int half = 0; half < 2; half++) {
		float peak = fmaxf(r.peak[half], t.base[half]), base = peak == -INFINITY ? 0 : peak;

		down[half] = exp2_fast(r.peak[half] - base);
		up[half] = exp2_fast(t.base[half] - base);
		r.peak[half] = peak;
		r.total[half] = r.total[half] * down[half] + t.sum[half] * up[half];
	}
#pragma unroll
	for (int i = 0; i < CUT::SUMS; i += 4) {
		float2 factor = *(const float2 *)(factors + i * 2);

#pragma unroll
		for (int half = 0; half < 2; half++) {
			float *sums = r.sums + i + half * 2;
			const float *more = added + i + half * 2;

			sums[0] = sums[0] * down[half] + more[0] * (factor.x * up[half]);
			sums[1] = sums[1] * down[half] + more[1] * (factor.y * up[half]);
		}
	}
}

/* What a tile of queries goes through. */
template <class CUT> struct pairs_state {
	team_rows<CUT> r;
	pair_weights<CUT> weights;
	tile_base base;
	float of_row[2]; /* factors */
};

/* Makes weights of tile n's scores, which are there. */
template <class CUT>
__device__ __forceinline__ void weigh_tile(const pairs_work &w, const team_tiles<CUT> &s, pairs_state<CUT> &a,
                                           const attention_tile &t, int n, float of_tile)
{
	const float factor[2] = {a.of_row[0] * of_tile, a.of_row[1] * of_tile};

	if (n >= t.keys.plain_end || n < t.keys.plain_begin)
		mask_scores<CUT>(a.r, rule_for<CUT>(w, t.length), s.row(t), n * CUT::KEYS);
	a.base = weigh_pairs<CUT>(a.r, a.weights, factor);
}

template <class CUT>
__device__ __forceinline__ void begin_pairs(const pairs_work &w, team_tiles<CUT> &s, pairs_state<CUT> &a,
                                            const attention_tile &t, const float *of_keys)
{
	int n = t.keys.end - 1;
	float of_tile = of_keys[n];

	s.k.await_full();
	await_turn<CUT>(s.team);
	multiply_pairs<CUT>(a.r, s.q.tile(), s.k.tile());
	end_turn<CUT>(s.team);
	hopper::products_wait();
	hopper::settle(a.r.scores);
	s.k.release();
	weigh_tile<CUT>(w, s, a, t, n, of_tile);
}

/* Weighs tile n, and adds the values of the one before, whose factors these are. */
template <class CUT>
__device__ __forceinline__ void step_pairs(const pairs_work &w, team_tiles<CUT> &s, pairs_state<CUT> &a,
                                           const attention_tile &t, int n, const float *of_keys,
                                           const float *of_values)
{
	float added[CUT::SUMS], of_tile = of_keys[n];

	s.v.await_full();
	s.k.await_full();
	await_turn<CUT>(s.team);
	multiply_values<CUT>(added, a.weights, s.v.tile());
	multiply_pairs<CUT>(a.r, s.q.tile(), s.k.tile());
	end_turn<CUT>(s.team);
	hopper::products_wait<1>();
	hopper::settle(added);
	s.v.release();
	add_tile<CUT>(a.r, a.base, added, of_values);
	hopper::products_wait();
	hopper::settle(a.r.scores);
	s.k.release();
	weigh_tile<CUT>(w, s, a, t, n, of_tile);
}

template <class CUT>
__device__ __forceinline__ void end_pairs(team_tiles<CUT> &s, pairs_state<CUT> &a, const float *of_values)
{
	float added[CUT::SUMS];

	s.v.await_full();
	await_turn<CUT>(s.team);
	multiply_values<CUT>(added, a.weights, s.v.tile());
	end_turn<CUT>(s.team);
	hopper::products_wait();
	hopper::settle(added);
	s.v.release();
	add_tile<CUT>(a.r, a.base, added, of_values);
}

template <class CUT>
__device__ __forceinline__ void attend_pairs(const pairs_work &w, team_tiles<CUT> &s, pairs_state<CUT> &a,
                                             const attention_tile &t)
{
	uint64_t unit = (uint64_t)t.batch * w.heads + (uint64_t)t.head;
	uint64_t key_unit = (uint64_t)t.batch * w.key_heads + (uint64_t)(t.head + (int)w.first_head) / w.group;
	const float *of_keys = w.k_factors + key_unit * w.key_tiles;
	const float *of_values = w.v_factors + key_unit * w.key_tiles * CUT::COLUMNS + threadIdx.x % 4 * 2;
	int n = t.keys.end - 1;

#pragma unroll
	for (int half = 0; half < 2; half++) {
		int row = s.row(t) + half * 8;

		a.of_row[half] = row < w.queries ? w.q_factors[unit * (uint64_t)w.queries + (uint64_t)row] : 1;
		a.r.peak[half] = -INFINITY;
		a.r.total[half] = 0;
	}
	clear_sums<CUT>(a.r);
	if (!t.sees_keys())
		return;
	begin_pairs<CUT>(w, s, a, t, of_keys);
#pragma unroll 1
	for (n--; n >= t.keys.begin; n--)
		step_pairs<CUT>(w, s, a, t, n, of_keys, of_values + (int64_t)(n + 1) * CUT::COLUMNS);
	end_pairs<CUT>(s, a, of_values + (int64_t)t.keys.begin * CUT::COLUMNS);
}

template <class CUT>
__device__ __forceinline__ void write_sums(const pairs_work &w, const team_tiles<CUT> &s,
                                           const team_rows<CUT> &r, const attention_tile &t)
{
#pragma unroll
	for (int half = 0; half < 2; half++) {
		float total = sum_of_lanes(r.total[half]), by = total == 0 ? 0 : 1 / total;
		int row = s.row(t) + half * 8;

		if (row >= w.queries)
			continue;
		float *to = row_of<float>(w.to, t.batch, t.head, row);

#pragma unroll
		for (int i = 0; i < CUT::SUMS; i += 4)
#pragma unroll
			for (int odd = 0; odd < 2; odd++) {
				int column = i * 2 + (int)threadIdx.x % 4 * 2 + odd;

				if (column < w.values)
					to[column * w.to.strides[3]] = r.sums[i + half * 2 + odd] * by;
			}
	}
}

template <class CUT>
__device__ __forceinline__ void attend_pair_tiles(const pairs_work &w, attention_memory<CUT> memory, int team)
{
	team_tiles<CUT> s = {w, memory.ring_of_k(), memory.ring_of_v(), memory.ring_of_q(team), team};
	unsigned number;

	if (team == 0)
		hopper::threads_arrive<2 * TEAM_THREADS>(TURN_BARRIER);
	while ((number = await_number<CUT>(memory, s.q, team)) < w.tiles) {
		attention_tile t = take_tile<CUT>(w, memory, s.q, team, number);
		pairs_state<CUT> a;

		attend_pairs<CUT>(w, s, a, t);
		s.q.release();
		write_lse<CUT>(s, a.r, t);
		write_sums<CUT>(w, s, a.r, t);
	}
	if (team == 0)
		await_turn<CUT>(team);
}

#endif

template <class CUT>
__global__ void __launch_bounds__(CUT::THREADS, 1) attend_pairs_mapped(const __grid_constant__ pairs_work w)
{
#ifdef KOPS_HOPPER
	extern __shared__ char shared[];
	attention_memory<CUT> memory(hopper::shared_address(shared));
	/* Of its first thread, so that the compiler sees that it is the same for a warp. */
	int warpgroup = __shfl_sync(~0u, (int)threadIdx.x / TEAM_THREADS, 0);

	let_next_kernel_come();
	if (threadIdx.x == 0)
		memory.init(w);
	__syncthreads();
	await_kernel_before();
	if (!split_fits(w.found))
		return;
	if (warpgroup == 0) {
		hopper::fewer_registers<CUT::LOADER_REGISTERS>();
		if (threadIdx.x == 0)
			load_tiles<CUT>(w, memory);
	} else {
		hopper::more_registers<CUT::TEAM_REGISTERS>();
		attend_pair_tiles<CUT>(w, memory, warpgroup - 1);
	}
#endif
}

} // namespace

#endif
