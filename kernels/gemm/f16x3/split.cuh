/*
 * split.cuh: f32 operands as sums of numbers that tensor cores multiply: f16 pairs or bf16 triples.
 *
 * A line is a row of A or a column of B. Each is scaled by a power of two that depends on its largest
 * magnitude, then each number of it is cut into terms: high = round(x), then what is left, again and again.
 *
 * f16_pairs: the largest comes into [2^15, 2^16), or just below if it would be rounded to infinity. x = high +
 * low, exact to 2^-22 of x down to 2^-19 of the line's largest. What lies below is held to 2^-41 of the
 * largest, and is a loss that weighs more the smaller it is (judge()).
 *
 * bf16_triples: the largest comes into [2^48, 2^49), but no scale is beyond 2^±63. x = high + middle + low is
 * exact where its last bit stays above bf16's 2^-133: always in lines whose largest is below 2^32, and down to
 * 2^-158 of the largest in any. All else is a loss; so are Inf and NaN. Scaled sums are below 2^98 K, or no
 * larger than the sums themselves, and two scales are undone by one power of two that f32 has.
 *
 * The terms are stored for the copy engine and wgmma: a tile holds 32 of K for 128 lines. It begins with a line
 * in 128 bytes: 32 first terms, 32 second terms, in 16-byte pieces that stand where the 128-byte swizzle wants
 * them. Third terms follow, a line in 64 bytes, placed by the 64-byte swizzle. Tiles along K follow each other.
 * Lines and K are padded with zeros to whole tiles.
 */
#ifndef KOPS_KERNELS_GEMM_SPLIT_H
#define KOPS_KERNELS_GEMM_SPLIT_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <limits.h>

#include "common/hopper/wgmma.cuh"
#include "common/overlap.cuh"
#include "fitted.h"
#include "gemm/tiles.cuh"

namespace
{

constexpr int TILE_LINES = 128, TILE_DEPTH = 32;
constexpr int PAIR_LINE = TILE_DEPTH * 4, THIRD_LINE = TILE_DEPTH * 2; /* bytes */
constexpr int PAIRS_BYTES = TILE_LINES * PAIR_LINE;
constexpr int LINES_UNIT = 256, DEPTH_UNIT = 64; /* padded to */
constexpr int SCALE_MAX = 63;                    /* the exponent of a line's scale */

/* What C is computed from: the same everywhere, or for each region of it. */
enum terms { PAIRS, TRIPLES, F64, BY_REGION };

struct f16_pairs {
	using term = __half;
	static constexpr terms NAME = PAIRS;
	static constexpr int TERMS = 2, TILE_BYTES = PAIRS_BYTES;
	static constexpr int TOP = 15, SCALE_MIN = INT_MIN; /* larger numbers are unfit */
	/* What lifts the bits of numbers that f16 rounds to 2^16 to the next exponent. */
	static constexpr unsigned LIFT = 0x2000;
	/* A loss weighs the square of (what is left of x, by x) in units of 2^-21, and at most WEIGHT_MAX. */
	static constexpr int EXACT_BITS = 21;
	static constexpr int WEIGHT_BITS = 8;
	static constexpr unsigned WEIGHT_MAX = 1u << WEIGHT_BITS;
	/* Shorter sums must not rest on few products, which tensor cores truncate: at most a quarter of a line
	 * may be so small beside its largest. */
	static constexpr uint64_t LONG = 160;
	static constexpr float SMALL = 0x1p-6f;

	static double wave_ns()
	{
		return fitted.f16x3_cuts.pairs_wave;
	}
	static double split_ns()
	{
		return fitted.f16x3_cuts.pairs_split;
	}
	static double lasting(double ns)
	{
		return fitted_lasting(ns, fitted.f16x3.pairs_lasting, fitted.f16x3.pairs_soon_ns);
	}

	__device__ __forceinline__ static term round(float x)
	{
		return __float2half_rn(x);
	}
	__device__ __forceinline__ static float value(term x)
	{
		return __half2float(x);
	}
	__device__ __forceinline__ static unsigned bits(term x)
	{
		return __half_as_ushort(x);
	}
};

struct bf16_triples {
	using term = __nv_bfloat16;
	static constexpr terms NAME = TRIPLES;
	static constexpr int TERMS = 3, TILE_BYTES = PAIRS_BYTES + TILE_LINES * THIRD_LINE;
	static constexpr int TOP = 48, SCALE_MIN = -SCALE_MAX;
	static constexpr unsigned LIFT = 0;
	/* Products of a sum, for its errors to be those of f32 or less, not counting those of numbers so small
	 * beside the largest of their line. */
	static constexpr uint64_t LONG = 768;
	static constexpr float SMALL = 0x1p-32f;

	static double wave_ns()
	{
		return fitted.f16x3_cuts.triples_wave;
	}
	static double split_ns()
	{
		return fitted.f16x3_cuts.triples_split;
	}
	static double lasting(double ns)
	{
		return fitted_lasting_ns(ns, fitted.f16x3.lasting) / ns;
	}

	__device__ __forceinline__ static term round(float x)
	{
		return __float2bfloat16_rn(x);
	}
	__device__ __forceinline__ static float value(term x)
	{
		return __bfloat162float(x);
	}
	__device__ __forceinline__ static unsigned bits(term x)
	{
		return __bfloat16_as_ushort(x);
	}
};

/* ---- Which terms are accurate ---- */

/* What was found in lines of an operand; begins as zeros. */
struct alignas(16) findings {
	/* For f16_pairs. */
	unsigned unfit; /* NaN, Inf, numbers too large, losses of a line that weigh too much, many small ones */
	unsigned losses; /* any loss at all */
	unsigned sparse; /* a line that is not all zeros, but nearly: its sums may rest on a loss */
	/* For bf16_triples. */
	unsigned lost; /* any loss, or lines of which sums have few products: one might dominate */
};

/* All at once: a block's first tile waits for them. */
__device__ __forceinline__ findings read_findings(const findings *from)
{
	uint4 v = *(const uint4 *)from;

	return {v.x, v.y, v.z, v.w};
}

/* So a few unfit lines make a few regions slower. */
constexpr int REGION = LINES_UNIT; /* lines of A, and of B */

/* What was found in both operands. Code for sm_90 without wgmma has nothing but f64. */
struct survey {
	findings *all[2];        /* in all lines, perhaps in others as well */
	findings *regions[2];    /* in each REGION of them, batch by batch */
	uint64_t batch_lines[2]; /* from one batch to the next; 0 where one matrix serves all */
	bool pairs_tried, triples_tried;

	__device__ __forceinline__ bool pairs_fit(const findings &a, const findings &b) const
	{
		return pairs_tried && !(a.unfit | b.unfit | (a.losses & b.sparse) | (b.losses & a.sparse));
	}
	__device__ __forceinline__ terms of_all() const
	{
#ifdef KOPS_HOPPER
		findings a = read_findings(all[0]), b = read_findings(all[1]);

		if (pairs_fit(a, b))
			return PAIRS;
		return !pairs_tried && !a.lost && !b.lost ? TRIPLES : BY_REGION;
#else
		return F64;
#endif
	}
	/* Where it is BY_REGION: of the region that has this element of C. */
	__device__ __forceinline__ terms at(uint64_t batch, uint64_t row, uint64_t col) const
	{
		findings a = read_findings(regions[0] + (batch * batch_lines[0] + row) / REGION);
		findings b = read_findings(regions[1] + (batch * batch_lines[1] + col) / REGION);

		if (pairs_fit(a, b))
			return PAIRS;
		return triples_tried && !a.lost && !b.lost ? TRIPLES : F64;
	}
};

struct split_operand {
	const float *data;
	int64_t batch_stride, line_stride, k_stride;
	uint64_t batches, lines, depth;
	uint64_t padded_lines, padded_depth;
	bool along_k, vectors;
	/* Per line, batch by batch: the bits of the largest magnitude, how many are not 0; what the losses of
	 * pairs weigh, and how many are small. */
	unsigned *largest, *nonzeros, *losses, *small;
	uint4 *tiles;
};

struct split_task {
	split_operand operands[2];
	survey found;
	unsigned blocks_of_first;
	unsigned blocks; /* of both */
};

/* Thousands of writes to one place would take their time: most lines only see that it is done. */
__device__ __forceinline__ void report(const split_task &t, int which, uint64_t line, unsigned findings::*what)
{
	findings *all = t.found.all[which], *region = t.found.regions[which] + line / REGION;

	if (!(region->*what))
		all->*what = region->*what = 1;
}

__host__ __device__ inline uint64_t round_up(uint64_t n, uint64_t unit)
{
	return (n + unit - 1) / unit * unit;
}

/* The exponent of a line's scale. Tiny numbers are not scaled all the way: in f16_pairs they show as losses. */
template <class FORMAT> __device__ __forceinline__ int scale_of(unsigned largest)
{
	int exponent = largest ? 127 + FORMAT::TOP - (int)((largest + FORMAT::LIFT) >> 23) : 0;

	return max(exponent < SCALE_MAX ? exponent : SCALE_MAX, FORMAT::SCALE_MIN);
}

__device__ __forceinline__ float power_of_two(int exponent)
{
	return __uint_as_float((unsigned)(127 + exponent) << 23);
}

/* ---- Pass 1: the largest of each line ---- */

constexpr int SPLIT_THREADS = 256;
constexpr int MEASURE_DEPTH_ALONG = 1024; /* of K per block of 8 lines, one warp each */
constexpr int MEASURE_DEPTH_ACROSS = 64;  /* of K per block of 128 lines, one lane each, two halves */

struct measure {
	unsigned largest = 0, nonzeros = 0;

	__device__ __forceinline__ void add(float x)
	{
		unsigned bits = __float_as_uint(x) & 0x7fffffff;

		largest = max(largest, bits);
		nonzeros += bits != 0;
	}
	__device__ __forceinline__ void report(const split_operand &o, uint64_t line) const
	{
		if (largest == 0)
			return;
		atomicMax(o.largest + line, largest);
		atomicAdd(o.nonzeros + line, nonzeros);
	}
};

__host__ __device__ inline uint64_t measure_blocks(const split_operand &o)
{
	if (o.along_k)
		return o.batches * ((o.lines + 7) / 8) *
		       ((o.depth + MEASURE_DEPTH_ALONG - 1) / MEASURE_DEPTH_ALONG);
	return o.batches * ((o.lines + 127) / 128) *
	       ((o.depth + MEASURE_DEPTH_ACROSS - 1) / MEASURE_DEPTH_ACROSS);
}

__device__ __forceinline__ void measure_along(const split_operand &o, uint64_t block)
{
	uint64_t groups = (o.lines + 7) / 8, pieces = (o.depth + MEASURE_DEPTH_ALONG - 1) / MEASURE_DEPTH_ALONG;
	uint64_t piece = block % pieces, batch = block / pieces / groups;
	uint64_t line = block / pieces % groups * 8 + threadIdx.x / 32;
	int lane = threadIdx.x % 32,
	    length = rest_of<MEASURE_DEPTH_ALONG>(o.depth, piece * MEASURE_DEPTH_ALONG);
	const float *from;
	measure m;

	if (line >= o.lines)
		return;
	from = o.data + (int64_t)batch * o.batch_stride + (int64_t)line * o.line_stride +
	       (int64_t)(piece * MEASURE_DEPTH_ALONG) * o.k_stride;
	if (o.vectors) {
#pragma unroll
		for (int i = 0; i < MEASURE_DEPTH_ALONG; i += 128) {
			int k = i + lane * 4;
			float4 v = k < length ? *(const float4 *)(from + k) : make_float4(0, 0, 0, 0);
			m.add(v.x), m.add(v.y), m.add(v.z), m.add(v.w);
		}
	} else {
#pragma unroll 8
		for (int k = lane; k < length; k += 32)
			m.add(from[k * o.k_stride]);
	}
#pragma unroll
	for (int i = 16; i > 0; i /= 2) {
		m.largest = max(m.largest, __shfl_xor_sync(0xffffffff, m.largest, i));
		m.nonzeros += __shfl_xor_sync(0xffffffff, m.nonzeros, i);
	}
	if (lane == 0)
		m.report(o, batch * o.padded_lines + line);
}

__device__ __forceinline__ void measure_across(const split_operand &o, uint64_t block)
{
	uint64_t groups = (o.lines + 127) / 128,
	         pieces = (o.depth + MEASURE_DEPTH_ACROSS - 1) / MEASURE_DEPTH_ACROSS;
	uint64_t group = block % groups, batch = block / groups / pieces;
	uint64_t line = group * 128 + threadIdx.x % 128;
	uint64_t begin =
	    block / groups % pieces * MEASURE_DEPTH_ACROSS + threadIdx.x / 128 * (MEASURE_DEPTH_ACROSS / 2);
	const float *from = o.data + (int64_t)batch * o.batch_stride + (int64_t)line * o.line_stride +
	                    (int64_t)begin * o.k_stride;
	measure m;

	if (line >= o.lines || begin >= o.depth)
		return;
	int length = rest_of<MEASURE_DEPTH_ACROSS / 2>(o.depth, begin);
#pragma unroll
	for (int k = 0; k < MEASURE_DEPTH_ACROSS / 2; k++)
		m.add(k < length ? from[k * o.k_stride] : 0);
	m.report(o, batch * o.padded_lines + line);
}

__device__ __forceinline__ void measure_block(const split_operand &o, uint64_t block)
{
	if (o.along_k)
		measure_along(o, block);
	else
		measure_across(o, block);
}

__global__ void __launch_bounds__(SPLIT_THREADS) measure_lines(const __grid_constant__ split_task t)
{
	let_next_kernel_come();
	/* Two calls: so each operand's numbers are constants for the compiler. */
	if (blockIdx.x < t.blocks_of_first)
		measure_block(t.operands[0], blockIdx.x);
	else
		measure_block(t.operands[1], blockIdx.x - t.blocks_of_first);
}

/* ---- Pass 2: the tiles ---- */

/* Eight numbers that follow each other along K. losses: their weight in pairs, their number in triples. small:
 * only where judge() wants it. */
template <class FORMAT> struct pieces {
	uint4 terms[FORMAT::TERMS];
	unsigned losses, small;
};

/* What two terms leave of y. */
__device__ __forceinline__ float left_by_pairs(float y)
{
	y -= f16_pairs::value(f16_pairs::round(y));
	return y - f16_pairs::value(f16_pairs::round(y));
}

/* The losses' weight, by exponents only, which is within a factor of 4. Seldom called. */
__device__ __noinline__ unsigned weight_of_losses(float4 low, float4 high, float scale)
{
	const float x[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
	unsigned weight = 0;

	for (int i = 0; i < 8; i++) {
		float y = x[i] * scale, left = fabsf(left_by_pairs(y));
		int exponent = (int)(__float_as_uint(left) >> 23) - (int)(__float_as_uint(fabsf(y)) >> 23) +
		               f16_pairs::EXACT_BITS;
		if (left == 0)
			weight += y == 0 && x[i] != 0 ? f16_pairs::WEIGHT_MAX : 0;
		else if (exponent >= 0)
			weight += 1u << min(2 * exponent, +f16_pairs::WEIGHT_BITS);
	}
	return weight;
}

template <class FORMAT>
__device__ __forceinline__ unsigned pack(typename FORMAT::term a, typename FORMAT::term b)
{
	return FORMAT::bits(b) << 16 | FORMAT::bits(a);
}

template <class FORMAT>
__device__ __forceinline__ pieces<FORMAT> split_eight(const float (&x)[8], unsigned largest, bool wants_small)
{
	float scale = power_of_two(scale_of<FORMAT>(largest));
	typename FORMAT::term terms[FORMAT::TERMS][8];
	float unscale = __uint_as_float((254u << 23) - __float_as_uint(scale));
	pieces<FORMAT> p;
	bool any = false;

	p.losses = p.small = 0;
#pragma unroll
	for (int i = 0; i < 8; i++) {
		float y = x[i] * scale, left = y;
#pragma unroll
		for (int t = 0; t < FORMAT::TERMS; t++) {
			terms[t][i] = FORMAT::round(left);
			left -= FORMAT::value(terms[t][i]);
		}
		if constexpr (FORMAT::TERMS == 2) {
			any |= fabsf(left) * 0x1p22f > fabsf(y) || (y == 0 && x[i] != 0);
		} else { /* a loss in the scaling itself shows when it is undone */
			p.losses += (left != 0) | (y * unscale != x[i]);
		}
		if (wants_small)
			p.small += x[i] != 0 && fabsf(x[i]) < __uint_as_float(largest) * FORMAT::SMALL;
	}
	if (FORMAT::TERMS == 2 && any)
		p.losses = weight_of_losses(make_float4(x[0], x[1], x[2], x[3]),
		                            make_float4(x[4], x[5], x[6], x[7]), scale);
#pragma unroll
	for (int t = 0; t < FORMAT::TERMS; t++)
		p.terms[t] =
		    make_uint4(pack<FORMAT>(terms[t][0], terms[t][1]), pack<FORMAT>(terms[t][2], terms[t][3]),
		               pack<FORMAT>(terms[t][4], terms[t][5]), pack<FORMAT>(terms[t][6], terms[t][7]));
	return p;
}

/* Whether judge() looks at small numbers, in sums of so many products. */
template <class FORMAT> __device__ __forceinline__ bool wants_small(uint64_t depth)
{
	return FORMAT::TERMS == 3 || depth < FORMAT::LONG;
}

/* piece: which eight of the tile's 32 along K. */
template <class FORMAT>
__device__ __forceinline__ void put(uint4 *tile, int line, int piece, const pieces<FORMAT> &p)
{
	constexpr int THIRDS = PAIRS_BYTES / sizeof(uint4);

	tile[line * 8 + (piece ^ (line & 7))] = p.terms[0];
	tile[line * 8 + ((piece + 4) ^ (line & 7))] = p.terms[1];
	if constexpr (FORMAT::TERMS == 3)
		tile[THIRDS + line * 4 + (piece ^ (line >> 1 & 3))] = p.terms[2];
}

/*
 * What the losses of a line may weigh: two that are lost wholly, and K/2048, at most 8, for each number.
 *
 * They count most where small numbers meet large ones, so that all products are alike. There, losses of weight
 * w per number of both lines add 2^-21 sqrt(2w / K) |A| |B| to a sum's RMS error. cuBLAS errs by 2^-25.7 |A|
 * |B| on numbers of both signs, pairs without losses by half of that. So K/2048 is what makes both alike.
 */
__host__ __device__ inline uint64_t losses_most(uint64_t depth)
{
	uint64_t most = 2 * f16_pairs::WEIGHT_MAX + (depth < 16384 ? depth * depth / 2048 : depth * 8);

	return most < INT_MAX ? most : INT_MAX; /* sums that are compared with it do not overflow */
}

/* Adds up losses, and says what the line is like; once per line with k = 0. */
__device__ __forceinline__ void judge(f16_pairs, const split_task &t, int which, uint64_t line,
                                      unsigned largest, unsigned losses, unsigned small, bool first_of_line)
{
	const split_operand &o = t.operands[which];

	if (losses != 0) {
		report(t, which, line, &findings::losses);
		if (atomicAdd(o.losses + line, losses) + losses > losses_most(o.depth))
			report(t, which, line, &findings::unfit);
	}
	/* There triples, which count anew, are not tried. */
	if (small != 0 && atomicAdd(o.small + line, small) + small > o.depth / 4)
		report(t, which, line, &findings::unfit);
	if (!first_of_line)
		return;
	if (largest >= (unsigned)(127 + f16_pairs::TOP + SCALE_MAX + 1) << 23)
		report(t, which, line, &findings::unfit);
	if (largest != 0 && o.nonzeros[line] < o.depth / 8)
		report(t, which, line, &findings::sparse);
}

/* Where n of K numbers are not small, in both lines, n²/K products are not. */
__device__ __forceinline__ void judge(bf16_triples, const split_task &t, int which, uint64_t line,
                                      unsigned largest, unsigned losses, unsigned small, bool first_of_line)
{
	const split_operand &o = t.operands[which];

	if (losses != 0)
		report(t, which, line, &findings::lost);
	if ((small == 0 && !first_of_line) || largest == 0 ||
	    *(volatile unsigned *)&t.found.regions[which][line / REGION].lost)
		return;
	uint64_t n = o.nonzeros[line] - atomicAdd(o.small + line, small) - small;
	if (n * n < bf16_triples::LONG * o.depth)
		report(t, which, line, &findings::lost);
}

__host__ __device__ inline uint64_t split_blocks(const split_operand &o)
{
	return o.batches * (o.padded_lines / TILE_LINES) * (o.padded_depth / DEPTH_UNIT);
}

/* What a CUDA block of pass 2 makes: two tiles that follow each other. */
struct split_place {
	uint64_t first_line, first_k, batch;
	uint4 *tiles;
};

template <class FORMAT>
__device__ __forceinline__ split_place split_place_of(const split_operand &o, uint64_t block)
{
	uint64_t groups = o.padded_lines / TILE_LINES, pairs = o.padded_depth / DEPTH_UNIT;
	/* Neighbours in memory are the work of neighbours. */
	uint64_t pair = o.along_k ? block % pairs : block / groups % pairs;
	uint64_t group = o.along_k ? block / pairs % groups : block % groups, batch = block / pairs / groups;
	uint64_t tile = (batch * groups + group) * (o.padded_depth / TILE_DEPTH) + pair * 2;

	return {group * TILE_LINES, pair * DEPTH_UNIT, batch,
	        o.tiles + tile * (FORMAT::TILE_BYTES / sizeof(uint4))};
}

/* Zeros past the ends. */
__device__ __forceinline__ void load_eight(const split_operand &o, uint64_t batch, uint64_t line, uint64_t k,
                                           float (&x)[8])
{
	const float *from =
	    o.data + (int64_t)batch * o.batch_stride + (int64_t)line * o.line_stride + (int64_t)k * o.k_stride;
	bool there = line < o.lines;

	if (o.vectors) {
#pragma unroll
		for (int i = 0; i < 8; i += 4) {
			float4 v =
			    there && k + i < o.depth ? *(const float4 *)(from + i) : make_float4(0, 0, 0, 0);
			x[i] = v.x, x[i + 1] = v.y, x[i + 2] = v.z, x[i + 3] = v.w;
		}
	} else {
#pragma unroll
		for (int i = 0; i < 8; i++)
			x[i] = there && k + i < o.depth ? from[i * o.k_stride] : 0;
	}
}

template <class FORMAT>
__device__ __forceinline__ void split_along(const split_task &t, int which, const split_place &at)
{
	const split_operand &o = t.operands[which];
	constexpr int PER_LINE = DEPTH_UNIT / 8, LINES = SPLIT_THREADS / PER_LINE, PASSES = TILE_LINES / LINES;
	int piece = threadIdx.x % PER_LINE, first = threadIdx.x / PER_LINE;
	uint64_t k = at.first_k + piece * 8;

#pragma unroll 1
	for (int i = 0; i < PASSES; i += 2) { /* as much as registers hold */
		float x[2][8];
#pragma unroll
		for (int j = 0; j < 2; j++)
			load_eight(o, at.batch, at.first_line + first + (i + j) * LINES, k, x[j]);
#pragma unroll
		for (int j = 0; j < 2; j++) {
			int line = first + (i + j) * LINES;
			uint64_t index = at.batch * o.padded_lines + at.first_line + line;
			unsigned largest = o.largest[index];
			pieces<FORMAT> p = split_eight<FORMAT>(x[j], largest, wants_small<FORMAT>(o.depth));
			put(at.tiles + piece / 4 * (FORMAT::TILE_BYTES / sizeof(uint4)), line, piece % 4, p);
			judge(FORMAT(), t, which, index, largest, p.losses, p.small, k == 0);
		}
	}
}

/* By way of shared memory: lanes read along the lines' axis, but a line of a tile lies along K. */
template <class FORMAT>
__device__ __forceinline__ void split_across(const split_task &t, int which, const split_place &at,
                                             uint4 *tiles)
{
	const split_operand &o = t.operands[which];
	int line = threadIdx.x % TILE_LINES, half = threadIdx.x / TILE_LINES;
	uint64_t k = at.first_k + half * TILE_DEPTH, index = at.batch * o.padded_lines + at.first_line + line;
	const float *from = o.data + (int64_t)at.batch * o.batch_stride +
	                    (int64_t)(at.first_line + line) * o.line_stride + (int64_t)k * o.k_stride;
	uint4 *tile = tiles + half * (FORMAT::TILE_BYTES / sizeof(uint4));
	bool there = at.first_line + line < o.lines;
	unsigned largest = o.largest[index], losses = 0, small = 0;

#pragma unroll 1
	for (int i = 0; i < TILE_DEPTH; i += 16) { /* as much as registers hold */
		float x[2][8];
#pragma unroll
		for (int j = 0; j < 16; j++)
			x[j / 8][j % 8] = there && k + i + j < o.depth ? from[(i + j) * o.k_stride] : 0;
#pragma unroll
		for (int j = 0; j < 2; j++) {
			pieces<FORMAT> p = split_eight<FORMAT>(x[j], largest, wants_small<FORMAT>(o.depth));
			put(tile, line, i / 8 + j, p);
			losses += p.losses;
			small += p.small;
		}
	}
	judge(FORMAT(), t, which, index, largest, losses, small, k == 0);
	__syncthreads();
#pragma unroll
	for (int i = threadIdx.x; i < 2 * FORMAT::TILE_BYTES / (int)sizeof(uint4); i += SPLIT_THREADS)
		at.tiles[i] = tiles[i];
}

template <class FORMAT>
__device__ __forceinline__ void split_block(const split_task &t, int which, uint64_t block, uint4 *tiles)
{
	split_place at = split_place_of<FORMAT>(t.operands[which], block);

	if (t.operands[which].along_k)
		split_along<FORMAT>(t, which, at);
	else
		split_across<FORMAT>(t, which, at, tiles);
}

template <class FORMAT>
__device__ __forceinline__ void split_block_of(const split_task &t, unsigned block, uint4 *tiles)
{
	if (block < t.blocks_of_first)
		split_block<FORMAT>(t, 0, block, tiles);
	else
		split_block<FORMAT>(t, 1, block - t.blocks_of_first, tiles);
}

/*
 * Each block cuts two tiles. Of triples no more blocks are launched than run at once, and each goes on to the
 * next two tiles: thousands of them that came only to find that pairs fit would take their time.
 */
template <class FORMAT>
__global__ void __launch_bounds__(SPLIT_THREADS, 3) split_lines(const __grid_constant__ split_task t)
{
	__shared__ uint4 tiles[2 * FORMAT::TILE_BYTES / sizeof(uint4)];

	let_next_kernel_come();
	await_kernel_before();
	if constexpr (FORMAT::TERMS == 2) {
		split_block_of<FORMAT>(t, blockIdx.x, tiles);
	} else if (t.found.of_all() != PAIRS) {
		for (unsigned block = blockIdx.x; block < t.blocks; block += gridDim.x) {
			split_block_of<FORMAT>(t, block, tiles);
			__syncthreads();
		}
	}
}

} // namespace

#endif
