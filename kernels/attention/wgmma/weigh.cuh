/* weigh.cuh: a team's products, and how weights are made of scores. */
#ifndef KOPS_KERNELS_ATTENTION_WGMMA_WEIGH_H
#define KOPS_KERNELS_ATTENTION_WGMMA_WEIGH_H

#include "attention/wgmma/form.cuh"
#include "common/hopper/descriptor.cuh"
#include "common/hopper/element.cuh"
#include "softmax/exp2.cuh"

namespace
{

#ifdef KOPS_HOPPER

/* ---- A team's products ---- */

/* What a thread has of its team: rows t / 4 and 8 below of its warp's 16; of 8 columns two. */
template <class CUT> struct team_rows {
	float peak[2], total[2];
	float sums[CUT::SUMS];
	float scores[CUT::SCORES];
};

/* Exponentials in pairs, as products take them. */
template <class CUT> using tile_weights = uint32_t[CUT::KEY_STEPS][4];

/* Begins the products of the team's queries with a tile of keys. */
template <class CUT, hopper::element E>
__device__ __forceinline__ void multiply_keys(team_rows<CUT> &r, uint32_t q, uint32_t k)
{
	hopper::settle(r.scores);
	hopper::products_begin();
#pragma unroll
	for (int step = 0; step < CUT::DEPTH / 16; step++) {
		int panel = step / 4, piece = step % 4 * 2;
		hopper::add_products<E>(
		    r.scores, hopper::matrix_at<LINE_BYTES>(q + panel * CUT::Q_PANEL) + piece,
		    hopper::matrix_at<LINE_BYTES>(k + panel * CUT::KEYS_PANEL) + piece, step > 0);
	}
	hopper::products_commit();
}

/* Begins the products of weights with a tile of values. */
template <class CUT, hopper::element E>
__device__ __forceinline__ void add_values(team_rows<CUT> &r, tile_weights<CUT> &weights, uint32_t v)
{
	hopper::settle(r.sums);
#pragma unroll
	for (int step = 0; step < CUT::KEY_STEPS; step++)
		hopper::settle(weights[step]);
	hopper::products_begin();
#pragma unroll
	for (int step = 0; step < CUT::KEY_STEPS; step++)
		hopper::add_products_from<E, true>(
		    r.sums, weights[step],
		    hopper::matrix_across_at(v, CUT::KEYS_PANEL) + step * 16 * LINE_BYTES / 16, 1);
	hopper::products_commit();
}

/* ---- From scores to weights ---- */

/* Makes scores of keys that a row does not see -Inf. first: the tile's first key. */
template <class CUT>
__device__ __forceinline__ void mask_scores(team_rows<CUT> &r, const attention_rule &rule, int row, int first)
{
	int lane = (int)threadIdx.x % 32;

#pragma unroll
	for (int half = 0; half < 2; half++) {
		attention_keys keys = attention_keys_of(&rule, row + half * 8);
		int begin = (int)keys.begin - first, end = (int)keys.end - first;

#pragma unroll
		for (int j = 0; j < CUT::SCORES; j += 4)
#pragma unroll
			for (int i = half * 2; i < half * 2 + 2; i++) {
				int key = j * 2 + lane % 4 * 2 + i % 2;
				if (key < begin || key >= end)
					r.scores[j + i] = -INFINITY;
			}
	}
}

/* The largest, and the sum, of what the four lanes of a row have. */
__device__ __forceinline__ float peak_of_lanes(float x)
{
	x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
	return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

__device__ __forceinline__ float sum_of_lanes(float x)
{
	x += __shfl_xor_sync(~0u, x, 1);
	return x + __shfl_xor_sync(~0u, x, 2);
}

/* Makes weights of the scores: exponentials relative to base. sum: those of this thread. */
template <class CUT, class T>
__device__ __forceinline__ void make_weights(const team_rows<CUT> &r, tile_weights<CUT> &weights, float factor,
                                             const float (&base)[2], float (&sum)[2])
{
	const T *type = nullptr;
	float even[2] = {}, odd[2] = {};

#pragma unroll
	for (int i = 0; i < CUT::SCORES / 2; i++) {
		float x = exp2_fast(r.scores[i * 2] * factor - base[i % 2]),
		      y = exp2_fast(r.scores[i * 2 + 1] * factor - base[i % 2]);

		even[i % 2] += x;
		odd[i % 2] += y;
		weights[i / 4][i % 4] = pack_pair(type, x, y);
	}
	sum[0] = even[0] + odd[0];
	sum[1] = even[1] + odd[1];
}

/* The same relative to the largest score so far. down: what that does to older exponentials. */
template <class CUT, class T>
__device__ __forceinline__ void weigh_anew(team_rows<CUT> &r, tile_weights<CUT> &weights, float factor,
                                           float (&down)[2])
{
	float base[2], sum[2];

#pragma unroll
	for (int half = 0; half < 2; half++) {
		float two[2] = {r.scores[half * 2], r.scores[half * 2 + 1]};

#pragma unroll
		for (int j = 4; j < CUT::SCORES; j += 4) {
			two[0] = fmaxf(two[0], r.scores[j + half * 2]);
			two[1] = fmaxf(two[1], r.scores[j + half * 2 + 1]);
		}
		float peak = fmaxf(r.peak[half], peak_of_lanes(fmaxf(two[0], two[1])) * factor);

		base[half] = peak == -INFINITY ? 0 : peak;
		down[half] = exp2_fast(r.peak[half] - base[half]);
		r.peak[half] = peak;
	}
	make_weights<CUT, T>(r, weights, factor, base, sum);
	r.total[0] = r.total[0] * down[0] + sum[0];
	r.total[1] = r.total[1] * down[1] + sum[1];
}

/* Of a row's first tile. */
template <class CUT, class T>
__device__ __forceinline__ void weigh_first(team_rows<CUT> &r, tile_weights<CUT> &weights, float factor)
{
	float down[2];

	r.peak[0] = r.peak[1] = -INFINITY;
	r.total[0] = r.total[1] = 0;
	weigh_anew<CUT, T>(r, weights, factor, down);
}

/*
 * Makes weights relative to a score that was the largest of some tile before. Only if there are much larger
 * ones, or none was seen yet, which makes the sum Inf or NaN, they are made anew: returns true then.
 */
template <class CUT, class T>
__device__ __forceinline__ bool weigh(team_rows<CUT> &r, tile_weights<CUT> &weights, float factor,
                                      float (&down)[2])
{
	const float most = 0x1p14; /* f16 has it */
	float sum[2];

	make_weights<CUT, T>(r, weights, factor, r.peak, sum);
	if (__all_sync(~0u, sum[0] <= most && sum[1] <= most)) {
		r.total[0] += sum[0];
		r.total[1] += sum[1];
		return false;
	}
	weigh_anew<CUT, T>(r, weights, factor, down);
	return true;
}

template <class CUT> __device__ __forceinline__ void scale_sums(float (&sums)[CUT::SUMS], const float (&by)[2])
{
#pragma unroll
	for (int i = 0; i < CUT::SUMS; i++)
		sums[i] *= by[i / 2 % 2];
}

#endif

} // namespace

#endif
