/*
 * split.cuh: q, k and v of f32 as pairs of f16, which tensor cores multiply.
 *
 * Numbers are scaled by powers of two, so that the largest comes into [2^14, 2^15): those of a row of q, of a
 * tile of k, of a column in a tile of v. x = high + low then, exact to 2^-22 of x, or to 2^-39 of the largest.
 * A row has the high halves of all its columns and then the low ones; columns are padded with zeros to DEPTH.
 * Keys that do not count are zeros, whatever lies there.
 */
#ifndef KOPS_KERNELS_ATTENTION_F16X3_SPLIT_H
#define KOPS_KERNELS_ATTENTION_F16X3_SPLIT_H

#include "attention/f16x3/found.cuh"
#include "attention/problem.cuh"
#include "attention/warp.cuh"
#include "common/overlap.cuh"

namespace
{

constexpr int SPLIT_WARPS = 8, SPLIT_THREADS = SPLIT_WARPS * 32;
constexpr int SCALE_MAX = 48, SCALE_MIN = -24; /* exponents; larger numbers of q and k are unfit */
constexpr int COLUMN_SCALE_MAX = 120;          /* of v, whose factors meet no others */

/* Where an operand goes. factors undo the scales: of q one for each row, of k one for each tile, of v one for
 * each column of each tile. */
struct halves {
	__half *rows;
	float *factors;
};

struct split_work {
	attention_problem p;
	halves q, k, v;
	split_found *found;
	float factor; /* of scores, log2(e) included */
	int64_t key_heads;
	uint64_t q_tiles, key_tiles;           /* of a unit */
	uint64_t q_blocks, key_blocks, blocks; /* blocks: of q, k and v */
};

__device__ __forceinline__ float two_to(int exponent)
{
	return __uint_as_float((unsigned)(127 + exponent) << 23);
}

/* The exponent that brings the largest, given as its bits, into [2^14, 2^15). */
__device__ __forceinline__ int scale_of(unsigned largest, int most)
{
	int scale = largest ? 127 + 14 - (int)(largest >> 23) : 0;

	return scale < most ? scale : most;
}

/* Thousands of writes to one place would take their time: most only see that it is done. */
__device__ __forceinline__ void raise(unsigned *at, unsigned to)
{
	if (*(volatile unsigned *)at < to)
		atomicMax(at, to);
}

/* The numbers of a thread: of a warp's rows warp, warp + SPLIT_WARPS …, two of each 64 columns. */
template <int DEPTH, int ROWS> struct thread_numbers {
	static constexpr int EACH = ROWS / SPLIT_WARPS, COLUMNS = DEPTH / 32;
	float x[EACH][COLUMNS];

	__device__ __forceinline__ static int row(int i)
	{
		return i * SPLIT_WARPS + (int)threadIdx.x / 32;
	}
	__device__ __forceinline__ static int column(int c)
	{
		return c / 2 * 64 + (int)threadIdx.x % 32 * 2 + c % 2;
	}
	__device__ __forceinline__ void load(const float *from, const int64_t (&strides)[4], int rows,
	                                     int columns)
	{
#pragma unroll
		for (int i = 0; i < EACH; i++)
#pragma unroll
			for (int c = 0; c < COLUMNS; c++)
				x[i][c] = row(i) < rows && column(c) < columns
				              ? from[row(i) * strides[2] + column(c) * strides[3]]
				              : 0;
	}
	__device__ __forceinline__ unsigned bits(int i, int c) const
	{
		return __float_as_uint(x[i][c]) & 0x7fffffff;
	}
	__device__ __forceinline__ unsigned largest_of_row(int i) const
	{
		unsigned largest = 0;

#pragma unroll
		for (int c = 0; c < COLUMNS; c++)
			largest = max(largest, bits(i, c));
		return largest_of_warp(largest);
	}
	/* Scaled by these, one for each column. */
	__device__ __forceinline__ void store_row(int i, __half *to, const float (&scales)[COLUMNS]) const
	{
#pragma unroll
		for (int c = 0; c < COLUMNS; c += 2) {
			float even = x[i][c] * scales[c], odd = x[i][c + 1] * scales[c + 1];
			__half2 high = __floats2half2_rn(even, odd);
			float2 rounded = __half22float2(high);
			__half2 *at = (__half2 *)(to + row(i) * (2 * DEPTH) + column(c));

			at[0] = high;
			at[DEPTH / 2] = __floats2half2_rn(even - rounded.x, odd - rounded.y);
		}
	}
	__device__ __forceinline__ void store(int rows, __half *to, const float (&scales)[COLUMNS]) const
	{
#pragma unroll
		for (int i = 0; i < EACH; i++)
			if (row(i) < rows)
				store_row(i, to, scales);
	}
};

__device__ __forceinline__ void report_unfit(const split_work &w, unsigned largest, int scale)
{
	if (largest >= 0x7f800000 || scale < SCALE_MIN)
		w.found->unfit = 1;
}

/* to, factors: of the first of these rows. */
template <int DEPTH, int ROWS>
__device__ __forceinline__ void split_queries(const split_work &w, const thread_numbers<DEPTH, ROWS> &t,
                                              int rows, __half *to, float *factors)
{
#pragma unroll
	for (int i = 0; i < t.EACH; i++) {
		unsigned largest = t.largest_of_row(i);
		int scale = scale_of(largest, SCALE_MAX);
		float scales[thread_numbers<DEPTH, ROWS>::COLUMNS], sum = 0;

		if (t.row(i) >= rows)
			continue;
#pragma unroll
		for (int c = 0; c < t.COLUMNS; c++) {
			scales[c] = two_to(scale);
			sum += fabsf(t.x[i][c]);
		}
		sum = sum_of_warp(sum);
		t.store_row(i, to, scales);
		if (threadIdx.x % 32 != 0)
			continue;
		factors[t.row(i)] = two_to(-scale) * w.factor;
		report_unfit(w, largest, scale);
		raise(&w.found->q_longest, __float_as_uint(sum * w.factor));
	}
}

/* factor: of this tile. */
template <int DEPTH, int ROWS>
__device__ __forceinline__ void split_keys(const split_work &w, const thread_numbers<DEPTH, ROWS> &t, int rows,
                                           __half *to, float *factor)
{
	__shared__ unsigned tile_largest;
	unsigned largest = 0;

	if (threadIdx.x == 0)
		tile_largest = 0;
	__syncthreads();
#pragma unroll
	for (int i = 0; i < t.EACH; i++)
#pragma unroll
		for (int c = 0; c < t.COLUMNS; c++)
			largest = max(largest, t.bits(i, c));
	largest = largest_of_warp(largest);
	if (threadIdx.x % 32 == 0)
		atomicMax(&tile_largest, largest);
	__syncthreads();
	int scale = scale_of(tile_largest, SCALE_MAX);
	float scales[thread_numbers<DEPTH, ROWS>::COLUMNS];

#pragma unroll
	for (int c = 0; c < t.COLUMNS; c++)
		scales[c] = two_to(scale);
	t.store(rows, to, scales);
	if (threadIdx.x == 0) {
		*factor = two_to(-scale);
		report_unfit(w, tile_largest, scale);
		raise(&w.found->k_largest, tile_largest);
	}
}

/*
 * factors: of the columns of this tile. A column of many numbers that are small beside its largest, or 0, is
 * unfit: a result might rest on what they are held to.
 */
template <int DEPTH, int ROWS>
__device__ __forceinline__ void split_values(const split_work &w, const thread_numbers<DEPTH, ROWS> &t,
                                             int rows, int counted, __half *to, float *factors)
{
	const float small = 0x1p-6f;
	__shared__ unsigned largest[DEPTH], larger[DEPTH]; /* larger: how many are not small */
	float scales[thread_numbers<DEPTH, ROWS>::COLUMNS];

	for (int c = (int)threadIdx.x; c < DEPTH; c += SPLIT_THREADS)
		largest[c] = larger[c] = 0;
	__syncthreads();
#pragma unroll
	for (int c = 0; c < t.COLUMNS; c++) {
		unsigned of_thread = 0;

#pragma unroll
		for (int i = 0; i < t.EACH; i++)
			of_thread = max(of_thread, t.bits(i, c));
		atomicMax(&largest[t.column(c)], of_thread);
	}
	__syncthreads();
#pragma unroll
	for (int c = 0; c < t.COLUMNS; c++) {
		unsigned of_thread = 0;

		scales[c] = two_to(scale_of(largest[t.column(c)], COLUMN_SCALE_MAX));
#pragma unroll
		for (int i = 0; i < t.EACH; i++)
			of_thread += fabsf(t.x[i][c] * scales[c]) >= small;
		atomicAdd(&larger[t.column(c)], of_thread);
	}
	t.store(rows, to, scales);
	__syncthreads();
	for (int c = (int)threadIdx.x; c < DEPTH; c += SPLIT_THREADS) {
		factors[c] = two_to(-scale_of(largest[c], COLUMN_SCALE_MAX));
		if (largest[c] >= 0x7f800000 || (largest[c] && larger[c] * 8 < (unsigned)counted * 7))
			w.found->unfit = 1;
	}
}

/* A tile of q, k or v. */
struct split_tile {
	enum operand { Q, K, V } of;
	uint64_t number, unit; /* number: among the operand's */
	int64_t batch, head;
	int first, all;    /* rows: the tile's first, and those of the unit */
	int rows, counted; /* of the tile; and how many of them count */
};

template <int ROWS> __device__ __forceinline__ split_tile tile_of_block(const split_work &w, uint64_t block)
{
	bool is_q = block < w.q_blocks;
	uint64_t rest = block - w.q_blocks, tiles = is_q ? w.q_tiles : w.key_tiles;
	uint64_t heads = (uint64_t)(is_q ? w.p.heads : w.key_heads);
	split_tile t;

	t.of = is_q ? t.Q : rest < w.key_blocks ? t.K : t.V;
	t.number = is_q ? block : rest % w.key_blocks;
	t.unit = t.number / tiles;
	t.batch = (int64_t)(t.unit / heads);
	t.head = (int64_t)(t.unit % heads);
	t.first = (int)(t.number % tiles) * ROWS;
	t.all = is_q ? w.p.queries : w.p.keys;
	t.rows = t.all - t.first < ROWS ? t.all - t.first : ROWS;

	int64_t counted = is_q ? t.all : rule_for(w.p, length_of(w.p, t.batch)).keys;

	counted = counted < t.first ? 0 : counted - t.first;
	t.counted = counted < t.rows ? (int)counted : t.rows;
	return t;
}

template <int DEPTH, int ROWS>
__global__ void __launch_bounds__(SPLIT_THREADS) split_operands(const __grid_constant__ split_work w)
{
	await_kernel_before();
	for (uint64_t block = blockIdx.x; block < w.blocks; block += gridDim.x) {
		split_tile t = tile_of_block<ROWS>(w, block);
		const tensor &from = t.of == t.Q ? w.p.q : t.of == t.K ? w.p.k : w.p.v;
		const halves &to = t.of == t.Q ? w.q : t.of == t.K ? w.k : w.v;
		uint64_t first = t.unit * (uint64_t)t.all + (uint64_t)t.first;
		__half *rows = to.rows + first * (2 * DEPTH);
		thread_numbers<DEPTH, ROWS> x;

		x.load(row_of<const float>(from, t.batch, t.head, t.first), from.strides, t.counted,
		       t.of == t.V ? w.p.values : w.p.depth);
		if (t.of == t.Q)
			split_queries(w, x, t.rows, rows, to.factors + first);
		else if (t.of == t.K)
			split_keys(w, x, t.rows, rows, to.factors + t.number);
		else
			split_values(w, x, t.rows, t.counted, rows, to.factors + t.number * DEPTH);
		__syncthreads(); /* all have read what they share */
	}
	let_next_kernel_come();
}

} // namespace

#endif
