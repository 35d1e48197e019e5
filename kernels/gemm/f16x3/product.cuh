/*
 * product.cuh: the product of two operands that split.cuh has cut into terms: three products of pairs of f16,
 * or six of triples of bf16, on the tensor cores, summed in f32.
 *
 * A CUDA block has one warpgroup that brings tiles of K into a ring of stages in shared memory, by bulk copies,
 * and two that multiply. It keeps to one multiprocessor and goes from tile of C to tile of C, so that the next
 * one's operands are on their way while the sums of this one are written.
 */
#ifndef KOPS_KERNELS_GEMM_PRODUCT_H
#define KOPS_KERNELS_GEMM_PRODUCT_H

#include "common/hopper/cluster.cuh"
#include "common/hopper/descriptor.cuh"
#include "common/hopper/global.cuh"
#include "common/hopper/tma.cuh"
#include "common/hopper/wgmma.cuh"
#include "gemm/f16x3/split.cuh"
#include "gemm/pipeline.cuh"
#include "gemm/scheduler.cuh"

namespace
{

constexpr int WAVE_LINES = 64; /* of A, for one wgmma */
constexpr int SEGMENT = 32;    /* tiles of K, whose products are summed apart from others' */
constexpr int STAGE_BUDGET = 216 * 1024;

struct product {
	gemm_operand c;
	epilogue<float> to_c;
	bool c_pairs; /* columns 2i and 2i + 1 of C are one aligned float2 */
	uint64_t m, n, row_tiles, col_tiles, tiles;
	uint64_t k_tiles;
	/* From one batch to the next, in lines; 0 where one matrix serves all. */
	uint64_t a_batch, b_batch;
	const uint4 *a, *b;
	const unsigned *a_largest, *b_largest;
	float4 *kept; /* of large cuts, KEPT_BYTES for each block, if K has more than one segment */
	survey found;
};

/*
 * How C is cut. Each of two consumers has WAVES × 64 rows of a tile of 128 columns. The blocks of a cluster are
 * SHARERS with the same rows and neighbouring columns, each of which brings its part of A's tile for all; or
 * SPLITS of one tile, each of which has its part of K.
 */
template <class FORMAT_, int WAVES_, int SHARERS_, int SPLITS_> struct cut {
	using FORMAT = FORMAT_;
	static constexpr int WAVES = WAVES_, SHARERS = SHARERS_, SPLITS = SPLITS_, CLUSTER = SHARERS * SPLITS;
	static_assert(SHARERS == 1 || SPLITS == 1);
	static constexpr int ROWS = CONSUMERS * WAVES * WAVE_LINES, COLS = TILE_LINES;
	static constexpr int TILE_BYTES = FORMAT::TILE_BYTES;
	static constexpr int A_BYTES = ROWS / TILE_LINES * TILE_BYTES, STAGE_BYTES = A_BYTES + TILE_BYTES;
	static constexpr int STAGES = STAGE_BUDGET / STAGE_BYTES;
	static constexpr int SHARED_BYTES = STAGES * STAGE_BYTES + 2 * STAGES * 8 + 1024;

	/* A tile of K. */
	static double tile_ns()
	{
		return SPLITS == 2 ? FORMAT::split_ns() : WAVES * FORMAT::wave_ns();
	}
};

template <class FORMAT> using large_cut = cut<FORMAT, 2, 2, 1>; /* 256 × 128 per block */
template <class FORMAT> using small_cut = cut<FORMAT, 1, 1, 2>; /* 128 × 128 per two blocks */

constexpr uint64_t KEPT_BYTES = large_cut<f16_pairs>::ROWS * large_cut<f16_pairs>::COLS * sizeof(float);

#ifdef KOPS_HOPPER

constexpr int WAVE_SUMS = 64; /* per thread: 64 × 128 in a warpgroup */

struct product_place {
	uint64_t batch, row_tile, col_tile;
};

/* The tiles of the cluster's work number i; of those beside each other, the first. */
template <class CUT> __device__ __forceinline__ product_place product_place_of(const product &p, uint64_t i)
{
	constexpr int BAND = 16 / CUT::WAVES; /* rows of tiles */
	tile_number<uint64_t> tile = tile_of_number<BAND>(i, p.row_tiles, p.col_tiles / CUT::SHARERS);

	return {tile.batch, tile.row, tile.col * CUT::SHARERS};
}

/* Where this byte of A's part of a stage comes from. */
template <class CUT>
__device__ __forceinline__ const char *a_source(const product &p, const product_place &at, uint64_t k_tile,
                                                int byte)
{
	uint64_t group =
	    at.batch * p.a_batch / TILE_LINES + (at.row_tile * CUT::A_BYTES + byte) / CUT::TILE_BYTES;

	return (const char *)p.a + (group * p.k_tiles + k_tile) * CUT::TILE_BYTES + byte % CUT::TILE_BYTES;
}

template <class CUT>
__device__ __forceinline__ void fetch_a(const product &p, const product_place &at, uint64_t k_tile, uint32_t to,
                                        uint32_t barrier)
{
	constexpr int PART =
	    CUT::A_BYTES / CUT::SHARERS < CUT::TILE_BYTES ? CUT::A_BYTES / CUT::SHARERS : CUT::TILE_BYTES;

	if constexpr (CUT::SHARERS > 1) {
		int byte = hopper::cluster_rank() * PART;
		hopper::copy_bulk_to((1 << CUT::SHARERS) - 1, to + byte, a_source<CUT>(p, at, k_tile, byte),
		                     PART, barrier);
	} else {
#pragma unroll
		for (int byte = 0; byte < CUT::A_BYTES; byte += PART)
			hopper::copy_bulk(to + byte, a_source<CUT>(p, at, k_tile, byte), PART, barrier);
	}
}

/* Whether the cluster's tiles are computed from this format's terms. They are of one region. */
template <class CUT>
__device__ __forceinline__ bool is_due(const product &p, const product_place &at, bool by_region)
{
	static_assert(REGION % CUT::ROWS == 0 && REGION % (CUT::SHARERS * CUT::COLS) == 0);
	if (__builtin_expect(!by_region, 1))
		return true;
	return p.found.at(at.batch, at.row_tile * CUT::ROWS, at.col_tile * CUT::COLS) == CUT::FORMAT::NAME;
}

/* One thread. */
template <class CUT> __device__ __forceinline__ void produce(const product &p, pipeline<CUT> r, bool by_region)
{
	unsigned col = CUT::SHARERS > 1 ? hopper::cluster_rank() : 0;
	unsigned part = CUT::SPLITS > 1 ? hopper::cluster_rank() : 0;
	uint64_t k_end = part_begin(p.k_tiles, part + 1, (unsigned)CUT::SPLITS);

	for (tile_walk<uint64_t> walk(CUT::CLUSTER); walk.tile < p.tiles; walk.step()) {
		product_place at = product_place_of<CUT>(p, walk.tile);
		if (!is_due<CUT>(p, at, by_region))
			continue;
		uint64_t b_group = at.batch * p.b_batch / TILE_LINES + at.col_tile + col;
		const char *b = (const char *)p.b + b_group * p.k_tiles * CUT::TILE_BYTES;
		uint64_t k = part_begin(p.k_tiles, part, (unsigned)CUT::SPLITS);
		for (; k < k_end; k++, r.step()) {
			hopper::barrier_wait(r.empty(), r.parity ^ 1);
			hopper::barrier_expect(r.full(), CUT::STAGE_BYTES);
			fetch_a<CUT>(p, at, k, r.bytes(), r.full());
			hopper::copy_bulk(r.bytes() + CUT::A_BYTES, b + k * CUT::TILE_BYTES, CUT::TILE_BYTES,
			                  r.full());
		}
	}
}

/* Where the terms of some lines of an operand are in shared memory. */
struct terms_place {
	uint32_t pairs, thirds;

	/* Further lines of the same tile. */
	__device__ __forceinline__ terms_place operator+(int lines) const
	{
		return {pairs + lines * PAIR_LINE, thirds + lines * THIRD_LINE};
	}
};

template <class FORMAT> __device__ __forceinline__ terms_place terms_at(uint32_t tiles, int line)
{
	if constexpr (FORMAT::TERMS == 2)
		return {tiles + line * PAIR_LINE, 0};
	uint32_t tile = tiles + line / TILE_LINES * FORMAT::TILE_BYTES;
	return {tile + line % TILE_LINES * PAIR_LINE, tile + PAIRS_BYTES + line % TILE_LINES * THIRD_LINE};
}

constexpr int SECOND = TILE_DEPTH * 2 / 16; /* in 16 bytes: from first to second terms */
constexpr int STEP = 32, STEPS = 2;         /* bytes: 16 of K further */

/* One wave's products of one tile of K, begun and ended by multiply_tiles(): small ones first. */
__device__ __forceinline__ void issue_products(f16_pairs, float (&sums)[WAVE_SUMS], const terms_place &a,
                                               const terms_place &b)
{
	uint64_t a_at[STEPS] = {hopper::matrix_at<PAIR_LINE>(a.pairs),
	                        hopper::matrix_at<PAIR_LINE>(a.pairs + STEP)};
	uint64_t b_at[STEPS] = {hopper::matrix_at<PAIR_LINE>(b.pairs),
	                        hopper::matrix_at<PAIR_LINE>(b.pairs + STEP)};

#pragma unroll
	for (int i = 0; i < STEPS; i++) {
		hopper::add_products<hopper::element::F16>(sums, a_at[i] + SECOND, b_at[i], i > 0);
		hopper::add_products<hopper::element::F16>(sums, a_at[i], b_at[i] + SECOND, 1);
	}
#pragma unroll
	for (int i = 0; i < STEPS; i++)
		hopper::add_products<hopper::element::F16>(sums, a_at[i], b_at[i], 1);
}

/* What is left out, middle·low, low·middle and low·low, is below 2^-24 of the product. */
__device__ __forceinline__ void issue_products(bf16_triples, float (&sums)[WAVE_SUMS], const terms_place &a,
                                               const terms_place &b)
{
	uint64_t a_at[STEPS] = {hopper::matrix_at<PAIR_LINE>(a.pairs),
	                        hopper::matrix_at<PAIR_LINE>(a.pairs + STEP)};
	uint64_t b_at[STEPS] = {hopper::matrix_at<PAIR_LINE>(b.pairs),
	                        hopper::matrix_at<PAIR_LINE>(b.pairs + STEP)};
	uint64_t a_third[STEPS] = {hopper::matrix_at<THIRD_LINE>(a.thirds),
	                           hopper::matrix_at<THIRD_LINE>(a.thirds + STEP)};
	uint64_t b_third[STEPS] = {hopper::matrix_at<THIRD_LINE>(b.thirds),
	                           hopper::matrix_at<THIRD_LINE>(b.thirds + STEP)};

#pragma unroll
	for (int i = 0; i < STEPS; i++) {
		hopper::add_products<hopper::element::BF16>(sums, a_third[i], b_at[i], i > 0);
		hopper::add_products<hopper::element::BF16>(sums, a_at[i], b_third[i], 1);
		hopper::add_products<hopper::element::BF16>(sums, a_at[i] + SECOND, b_at[i] + SECOND, 1);
	}
#pragma unroll
	for (int i = 0; i < STEPS; i++) {
		hopper::add_products<hopper::element::BF16>(sums, a_at[i] + SECOND, b_at[i], 1);
		hopper::add_products<hopper::element::BF16>(sums, a_at[i], b_at[i] + SECOND, 1);
	}
#pragma unroll
	for (int i = 0; i < STEPS; i++)
		hopper::add_products<hopper::element::BF16>(sums, a_at[i], b_at[i], 1);
}

template <class FORMAT>
__device__ __forceinline__ void multiply_tiles(float (&sums)[WAVE_SUMS], const terms_place &a,
                                               const terms_place &b)
{
	hopper::settle(sums);
	hopper::products_begin();
	issue_products(FORMAT(), sums, a, b);
	hopper::products_commit();
	hopper::products_wait();
	hopper::settle(sums);
}

/* Where a thread's sums of one wave lie in C: rows `row` and row + 8, pairs of columns from `col` on, 8 apart.
 */
struct wave_place {
	uint64_t batch, row, col;
	float *c;

	__device__ __forceinline__ c_index index(int half, int further) const
	{
		return {batch, (int64_t)row + half * 8, (int64_t)col + further};
	}
};

/* Bias and activation of pairs of columns, 8 apart. */
template <int PAIRS>
__device__ __forceinline__ void finish_pairs(const product &p, const c_index &at, float (&v)[PAIRS * 2])
{
	const float *from = element_at<float>(p.to_c.bias, at.batch, at.row, at.col);

	if (p.to_c.has_line) {
		float2 bias[PAIRS];
#pragma unroll
		for (int j = 0; j < PAIRS; j++)
			bias[j] = load_pair(from + j * 8);
#pragma unroll
		for (int j = 0; j < PAIRS; j++)
			v[j * 2] += bias[j].x, v[j * 2 + 1] += bias[j].y;
	} else if (p.to_c.has_bias) {
#pragma unroll
		for (int j = 0; j < PAIRS * 2; j++)
			v[j] += from[(j / 2 * 8 + j % 2) * p.to_c.bias.col];
	}
	p.to_c.activate(v);
}

/* Two columns at a time; all columns exist. What there was in C is read ahead. FINISHES: there is more to do
 * than to scale. */
template <bool KEEPS, bool FINISHES, int SUMS>
__device__ __forceinline__ void write_pairs(const product &p, const wave_place &at, const float (&sums)[SUMS],
                                            const float (&b_scale)[SUMS / 2], float a_scale, int half)
{
	constexpr int PAIRS = SUMS / 4, AT_ONCE = FINISHES ? (PAIRS < 8 ? PAIRS : 8) : KEEPS ? PAIRS : 1;
	float2 *c = (float2 *)(at.c + half * 8 * p.c.row);

	if (at.row + half * 8 >= p.m)
		return;
#pragma unroll
	for (int first = 0; first < PAIRS; first += AT_ONCE) {
		float2 old[AT_ONCE];
		float v[AT_ONCE * 2];
#pragma unroll
		for (int j = 0; KEEPS && j < AT_ONCE; j++)
			old[j] = c[(first + j) * 4];
#pragma unroll
		for (int j = 0; j < AT_ONCE * 2; j++) {
			float sum = sums[(first + j / 2) * 4 + half * 2 + j % 2];
			v[j] = p.to_c.scale(sum * (a_scale * b_scale[first * 2 + j]));
			if (KEEPS)
				v[j] = p.to_c.add_old(v[j], j % 2 ? old[j / 2].y : old[j / 2].x);
		}
		if constexpr (FINISHES)
			finish_pairs<AT_ONCE>(p, at.index(half, first * 8), v);
#pragma unroll
		for (int j = 0; j < AT_ONCE; j++)
			c[(first + j) * 4] = make_float2(v[j * 2], v[j * 2 + 1]);
	}
}

template <int SUMS>
__device__ __forceinline__ void write_singly(const product &p, const wave_place &at, const float (&sums)[SUMS],
                                             const float (&b_scale)[SUMS / 2], float a_scale, int half)
{
	if (at.row + half * 8 >= p.m)
		return;
#pragma unroll
	for (int j = 0; j < SUMS / 2; j++) {
		int col = j / 2 * 8 + j % 2;
		if (at.col + col < p.n)
			p.to_c.store<float>(at.c + half * 8 * p.c.row + col * p.c.col,
			                    sums[j / 2 * 4 + half * 2 + j % 2] * (a_scale * b_scale[j]),
			                    at.index(half, col));
	}
}

/* A thread's sums of some waves, of twice as many columns each; row, col: where those of its warpgroup begin.
 */
template <class CUT, int WAVES, int SUMS>
__device__ __forceinline__ void write_sums_of(const product &p, uint64_t batch, uint64_t row, uint64_t col,
                                              const float (&sums)[WAVES][SUMS])
{
	bool pairs = p.c_pairs && col + SUMS * 2 <= p.n;
	float b_scale[SUMS / 2];

	row += threadIdx.x % WARPGROUP / 32 * 16 + threadIdx.x % 32 / 4;
	col += threadIdx.x % 4 * 2;
#pragma unroll
	for (int j = 0; j < SUMS / 2; j++)
		b_scale[j] = power_of_two(
		    -scale_of<typename CUT::FORMAT>(p.b_largest[batch * p.b_batch + col + j / 2 * 8 + j % 2]));
#pragma unroll
	for (int w = 0; w < WAVES; w++, row += WAVE_LINES) {
		wave_place at = {batch, row, col, element_at<float>(p.c, batch, row, col)};
#pragma unroll
		for (int half = 0; half < 2; half++) {
			float a_scale = power_of_two(
			    -scale_of<typename CUT::FORMAT>(p.a_largest[batch * p.a_batch + row + half * 8]));
			if (!pairs)
				write_singly(p, at, sums[w], b_scale, a_scale, half);
			else if (__builtin_expect(!p.to_c.finishes() && !p.to_c.keeps_old(), 1))
				write_pairs<false, false>(p, at, sums[w], b_scale, a_scale, half);
			else if (!p.to_c.finishes())
				write_pairs<true, false>(p, at, sums[w], b_scale, a_scale, half);
			else if (p.to_c.keeps_old())
				write_pairs<true, true>(p, at, sums[w], b_scale, a_scale, half);
			else
				write_pairs<false, true>(p, at, sums[w], b_scale, a_scale, half);
		}
	}
}

/*
 * A thread's sums of the segments of K before this one: in registers, or where they hold no more than the sums
 * of one segment, in memory that other threads leave alone.
 */
template <class CUT> struct keeper {
	static constexpr bool IN_REGISTERS = CUT::WAVES == 1;
	static constexpr int SUMS = CUT::WAVES * WAVE_SUMS, STEP = CONSUMERS * WARPGROUP;
	float4 *memory;
	float registers[IN_REGISTERS ? SUMS : 1];

	/* Adds the sums, and clears them. */
	__device__ __forceinline__ void add(float (&sums)[CUT::WAVES][WAVE_SUMS], bool first)
	{
#pragma unroll
		for (int i = 0; i < SUMS; i += 4) {
			float *s = sums[i / WAVE_SUMS] + i % WAVE_SUMS;
			if constexpr (IN_REGISTERS) {
#pragma unroll
				for (int j = 0; j < 4; j++)
					registers[i + j] = first ? s[j] : registers[i + j] + s[j];
			} else if (first) {
				memory[i / 4 * STEP] = make_float4(s[0], s[1], s[2], s[3]);
			} else {
				hopper::add_to_global(memory + i / 4 * STEP,
				                      make_float4(s[0], s[1], s[2], s[3]));
			}
			s[0] = s[1] = s[2] = s[3] = 0;
		}
	}

	/* Adds them to the sums. */
	__device__ __forceinline__ void add_to(float (&sums)[CUT::WAVES][WAVE_SUMS]) const
	{
#pragma unroll
		for (int i = 0; i < SUMS; i += 4) {
			float *s = sums[i / WAVE_SUMS] + i % WAVE_SUMS;
			if constexpr (IN_REGISTERS) {
#pragma unroll
				for (int j = 0; j < 4; j++)
					s[j] += registers[i + j];
			} else {
				float4 four = hopper::load_global(memory + i / 4 * STEP);
				s[0] += four.x, s[1] += four.y, s[2] += four.z, s[3] += four.w;
			}
		}
	}
};

/*
 * Sums in the tensor cores lose their low bits to truncation. So they run over one tile of K only, and are then
 * added to sums that round to nearest. Meanwhile the other consumer has the tensor cores. Long sums lose bits
 * as well, more than cuBLAS's where it splits K: so each segment is summed by itself.
 */
template <class CUT>
__device__ __forceinline__ void add_up(float (&sums)[CUT::WAVES][WAVE_SUMS], pipeline<CUT> &r, int consumer,
                                       uint64_t k_tiles, float4 *memory)
{
	using FORMAT = typename CUT::FORMAT;
	keeper<CUT> kept = {memory, {}};
	float chunk[WAVE_SUMS] = {};

#pragma unroll
	for (int w = 0; w < CUT::WAVES; w++)
#pragma unroll
		for (int j = 0; j < WAVE_SUMS; j++)
			sums[w][j] = 0;
	for (uint64_t k = 0; k < k_tiles; k++, r.step()) {
		terms_place a = terms_at<FORMAT>(r.bytes(), consumer * CUT::WAVES * WAVE_LINES);
		terms_place b = terms_at<FORMAT>(r.bytes() + CUT::A_BYTES, 0);

		if (k % SEGMENT == 0 && k > 0)
			kept.add(sums, k == SEGMENT);
		hopper::barrier_wait(r.full(), r.parity);
#pragma unroll
		for (int w = 0; w < CUT::WAVES; w++) {
			multiply_tiles<FORMAT>(chunk, a + w * WAVE_LINES, b);
			if (w == CUT::WAVES - 1)
				release(r);
#pragma unroll
			for (int j = 0; j < WAVE_SUMS; j++)
				sums[w][j] += chunk[j];
		}
	}
	if (k_tiles > SEGMENT)
		kept.add_to(sums);
}

template <class CUT> using split_parts = parts<CUT, WAVE_SUMS / 4>;

/* A consumer's part of the cluster's tile. Each block adds up some of its columns. */
template <class CUT>
__device__ __forceinline__ void consume_terms(const product &p, pipeline<CUT> r, int consumer)
{
	static_assert(CUT::WAVES == 1);
	constexpr int SHARE = WAVE_SUMS / CUT::SPLITS;
	unsigned part = hopper::cluster_rank();
	product_place at = product_place_of<CUT>(p, blockIdx.x / CUT::CLUSTER);
	split_parts<CUT> all = {r.data, CUT::SPLITS};
	float sums[1][WAVE_SUMS], share[1][SHARE];

	uint64_t k_begin = part_begin(p.k_tiles, part, (unsigned)CUT::SPLITS);
	uint64_t k_end = part_begin(p.k_tiles, part + 1, (unsigned)CUT::SPLITS);
	add_up<CUT>(sums, r, consumer, k_end - k_begin, nullptr);
	all.exchange(sums[0]);
#pragma unroll
	for (int q = 0; q < SHARE / 4; q++) {
		float4 v = all.total(q);
		share[0][q * 4] = v.x, share[0][q * 4 + 1] = v.y;
		share[0][q * 4 + 2] = v.z, share[0][q * 4 + 3] = v.w;
	}
	write_sums_of<CUT>(p, at.batch, at.row_tile * CUT::ROWS + consumer * WAVE_LINES,
	                   at.col_tile * CUT::COLS + part * SHARE * 2, share);
}

template <class CUT>
__device__ __forceinline__ void consume(const product &p, pipeline<CUT> r, int consumer, bool by_region)
{
	unsigned col = CUT::SHARERS > 1 ? hopper::cluster_rank() : 0;
	float4 *memory = p.kept + blockIdx.x * (KEPT_BYTES / sizeof(float4)) + threadIdx.x - WARPGROUP;
	float sums[CUT::WAVES][WAVE_SUMS];

	for (tile_walk<uint64_t> walk(CUT::CLUSTER); walk.tile < p.tiles; walk.step()) {
		product_place at = product_place_of<CUT>(p, walk.tile);
		if (!is_due<CUT>(p, at, by_region))
			continue;
		add_up<CUT>(sums, r, consumer, p.k_tiles, memory);
		uint64_t row = at.row_tile * CUT::ROWS + consumer * CUT::WAVES * WAVE_LINES;
		write_sums_of<CUT>(p, at.batch, row, (at.col_tile + col) * CUT::COLS, sums);
	}
}

#endif

/* One block per multiprocessor, each with its stages, goes through the tiles of C. */
template <class CUT> __global__ void __launch_bounds__(PRODUCT_THREADS, 1) multiply_terms(product p)
{
#ifdef KOPS_HOPPER
	extern __shared__ char shared[];
	pipeline<CUT> r(hopper::shared_address(shared));
	/* Of its first thread, so that the compiler sees that it is the same for a warp. */
	int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / WARPGROUP, 0);

	if (threadIdx.x == 0)
		init_barriers(r);
	await_kernel_before();
	terms of_all = p.found.of_all();
	bool by_region = of_all == BY_REGION;
	if (!by_region && of_all != CUT::FORMAT::NAME)
		return;
	/* A cluster whose blocks split K has one tile. */
	if (CUT::SPLITS > 1 && !is_due<CUT>(p, product_place_of<CUT>(p, blockIdx.x / CUT::CLUSTER), by_region))
		return;
	if constexpr (CUT::CLUSTER > 1)
		hopper::cluster_sync();
	else
		__syncthreads();
	if (warpgroup == 0) {
		hopper::fewer_registers<40>();
		if (threadIdx.x == 0)
			produce<CUT>(p, r, by_region);
		__syncwarp();
		if constexpr (CUT::SPLITS > 1)
			split_parts<CUT>::sit_out();
	} else {
		hopper::more_registers<232>();
		if constexpr (CUT::SPLITS > 1)
			consume_terms<CUT>(p, r, warpgroup - 1);
		else
			consume<CUT>(p, r, warpgroup - 1, by_region);
	}
	/* No block may go while another of the cluster still writes to its memory. */
	if constexpr (CUT::SHARERS > 1)
		hopper::cluster_sync();
#endif
}

} // namespace

#endif
