/* scores.cuh: products of a team's queries with a tile of the base, and scores of these. */
#ifndef KOPS_KERNELS_SEARCH_WGMMA_SCORES_H
#define KOPS_KERNELS_SEARCH_WGMMA_SCORES_H

#include <math.h>
#include <string.h>

#include "common/hopper/descriptor.cuh"
#include "common/hopper/element.cuh"
#include "search/wgmma/form.cuh"

namespace
{

#ifdef KOPS_HOPPER

/* ---- Lengths of rows ---- */

/* Of 16 bytes; neighbours are added up apart, so that fewer sums wait for each other. */
template <typename T> __device__ __forceinline__ void add_squares(float (&sums)[2], const float4 &vector)
{
	constexpr int N = sizeof vector / sizeof(T);
	T of_vector[N];

	memcpy(of_vector, &vector, sizeof of_vector);
#pragma unroll
	for (int i = 0; i < N; i++)
		sums[i % 2] += (float)of_vector[i] * (float)of_vector[i];
}

/* What a score needs of a row's squared length. */
__device__ __forceinline__ float length_part(float squares, search_metric metric)
{
	return metric != SEARCH_COSINE ? squares : squares > 0 ? 1 / sqrtf(squares) : 0;
}

/* A thread's rows of a tile, every THREADS-th, while products are under way. */
template <class CUT, typename T> struct row_lengths {
	static constexpr int THREADS = CUT::TEAMS * WARPGROUP, EACH = ROWS / THREADS;
	float squares[EACH][2];

	__device__ __forceinline__ static int row(int i)
	{
		return ((int)threadIdx.x - WARPGROUP) % THREADS + i * THREADS;
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
	/* To all teams that have this tile. */
	__device__ __forceinline__ void share(float *lengths, search_metric metric, int turn) const
	{
		hopper::threads_sync<THREADS>(LENGTHS_BARRIER + turn); /* those of the tile before are read */
#pragma unroll
		for (int i = 0; i < EACH; i++)
			lengths[row(i)] = length_part(squares[i][0] + squares[i][1], metric);
		hopper::threads_sync<THREADS>(LENGTHS_BARRIER + turn);
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

/* Of eight queries from `first` on, a thread's own one; all loads are under way at once. */
template <typename T> __device__ __forceinline__ float query_length(const work &w, uint64_t first)
{
	constexpr unsigned N = WARP_QUERIES / 2;
	float squares[N] = {}, part = 0;

	for (uint32_t c = threadIdx.x % WARP; c < w.columns; c += WARP)
#pragma unroll
		for (unsigned i = 0; i < N; i++) {
			float x = first + i < w.n_queries ? load<T>(w.queries, first + i, c) : 0;

			squares[i] += x * x;
		}
#pragma unroll
	for (unsigned i = 0; i < N; i++) {
		float sum = sum_of_lanes(squares[i]);

		if (threadIdx.x % WARP / 4 == i)
			part = length_part(sum, w.metric);
	}
	return part;
}

template <class CUT, typename T>
__device__ __forceinline__ thread_queries queries_of(const work &w, uint64_t first)
{
	thread_queries q;

	q.first = first;
#pragma unroll
	for (int half = 0; half < 2; half++) {
		q.parts[half] = 0;
		q.are_there[half] = first + query_of_thread(half) < w.n_queries;
		q.bounds[half] = q.are_there[half] ? -INFINITY : NAN;
		if constexpr (CUT::LENGTHS)
			q.parts[half] = query_length<T>(w, first + (unsigned)half * 8);
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

/* ---- Products ---- */

template <class CUT, typename T>
__device__ __forceinline__ void multiply_tile(float (&sums)[SUMS], row_lengths<CUT, T> &lengths,
                                              const mapped_work &m, const search_memory &memory,
                                              search_ring<CUT> &r, int team)
{
	search_ring<CUT> last = r;

	lengths.start();
#pragma unroll 1
	for (unsigned line = 0; line < m.plan.lines; line++, r.step()) {
		uint32_t at = CUT::KEPT ? memory.address + line * CUT::KEPT * LINE
		                        : r.bytes() + (ROWS + team * TEAM) * LINE;
		uint64_t q =
		    CUT::KEPT == 8 ? hopper::repeated_matrix_at<LINE>(at) : hopper::matrix_at<LINE>(at);

		hopper::barrier_wait(r.full(), r.parity);
		hopper::settle(sums);
		hopper::products_begin();
#pragma unroll
		for (int step = 0; step < LINE / 32; step++)
			hopper::add_products<element_of<T>::E>(sums, q + step * 2,
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

#endif

} // namespace

#endif
