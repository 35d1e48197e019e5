/*
 * tensor.cuh: a product of 16-bit or tf32 numbers on Hopper's tensor cores, summed in f32.
 *
 * As in product.cuh a block keeps to one multiprocessor: one warpgroup brings tiles of K into a ring of stages,
 * two multiply, each 64 or 128 rows of a tile of C. Here tensor maps describe A, B and C, so that the copy
 * engine brings any layout, fills up with zeros behind the ends, rounds f32 to tf32, to nearest (the tensor
 * cores would cut it off), and writes C while the next tile is under way.
 *
 * Whatever the type, a line of a tile is 128 bytes, 16-byte pieces exchanged by the 128-byte swizzle: a tile of
 * K is 64 numbers of 16 bits or 32 of tf32. An operand lies along K in its lines or across them. The tensor
 * cores take 16-bit numbers either way, tf32 only along K: there A may lie across, and goes by way of
 * registers.
 */
#ifndef KOPS_KERNELS_GEMM_TENSOR_H
#define KOPS_KERNELS_GEMM_TENSOR_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "common/hopper/cluster.cuh"
#include "common/hopper/descriptor.cuh"
#include "common/hopper/shared.cuh"
#include "common/hopper/tma.cuh"
#include "common/hopper/wgmma.cuh"
#include "gemm/epilogue.cuh"
#include "gemm/map.cuh"
#include "gemm/pipeline.cuh"
#include "gemm/scheduler.cuh"

namespace
{

using hopper::element;

constexpr int LINE_BYTES = 128;
constexpr int WAVE_ROWS = 64; /* of A, for one wgmma */
constexpr int WARP_ROWS = 16;
constexpr int STEPS = 4; /* of K in a tile, 32 bytes each: wgmmas */

template <element E> struct number {
	using type = __half;
};
template <> struct number<element::BF16> {
	using type = __nv_bfloat16;
};
template <> struct number<element::TF32> {
	using type = float;
};

enum class cut_name { WIDE, LONE, MIDDLE, SQUARE, NARROW };

/* How C is cut: a block has 128 rows for each of its WAVES, and COLS columns. Of a cluster's blocks those
 * BESIDE each other have the same rows, and each brings its part of A's tile for all; those BELOW each other
 * have the same columns, and share B's; or a cluster's blocks, SPLITS at most, have the same tile, and a part
 * of K each. BAND: see scheduler.cuh. NAME: how long a tile of K takes. DEFERS: see outbox. */
template <int WAVES_, int COLS_, int BESIDE_, int BELOW_, int STAGES_, int SLOTS_, int BAND_, cut_name NAME_,
          bool DEFERS_ = false, int SPLITS_ = 1>
struct cut {
	static constexpr bool DEFERS = DEFERS_;
	static constexpr int WAVES = WAVES_, COLS = COLS_, BESIDE = BESIDE_, BELOW = BELOW_;
	static constexpr int SHARERS = BESIDE * BELOW, SPLITS = SPLITS_;
	static_assert(BESIDE == 1 || BELOW == 1, "what is shared is every block's of the cluster");
	static_assert(SPLITS == 1 || (SHARERS == 1 && !DEFERS), "a cluster that splits K has one tile");
	static constexpr int STAGES = STAGES_, SLOTS = SLOTS_, BAND = BAND_;
	static constexpr cut_name NAME = NAME_;
	static constexpr int ROWS = CONSUMERS * WAVES * WAVE_ROWS, SUMS = COLS / 2;
	static constexpr int A_BYTES = ROWS * LINE_BYTES, B_BYTES = COLS * LINE_BYTES;
	static constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
	/* On its way to C: for each warp of a consumer so many times 16 lines. */
	static constexpr int SLOTS_BYTES = CONSUMERS * WAVE_ROWS * SLOTS * LINE_BYTES;
	static constexpr int SHARED_BYTES = SLOTS_BYTES + STAGES * STAGE_BYTES + 2 * STAGES * 8 + 1024;
	static_assert(SHARED_BYTES <= 227 * 1024);
};

/* What lies how. C_ACROSS: C's lines are along M. */
template <class CUT_, element E_, bool A_ACROSS_, bool B_ACROSS_, bool C_ACROSS_> struct form {
	using CUT = CUT_;
	using type = typename number<E_>::type;
	static constexpr element E = E_;
	static constexpr bool A_ACROSS = A_ACROSS_, B_ACROSS = B_ACROSS_, C_ACROSS = C_ACROSS_;
	static constexpr bool A_BY_REGISTERS = E == element::TF32 && A_ACROSS;
	static constexpr int TILE_DEPTH = LINE_BYTES / (int)sizeof(type);
	/* Rows or columns in one box of the tensor map; 128 bytes for each. */
	static constexpr int A_BOX = A_ACROSS ? TILE_DEPTH : 64, B_BOX = B_ACROSS ? TILE_DEPTH : 64;
	/* Warps whose rows of C interleave, and that write them together. */
	static constexpr int TEAM = A_BY_REGISTERS ? 2 : 1, SLOT_BYTES = TEAM * WARP_ROWS * LINE_BYTES;
	/* Columns of a team's rows that fill a slot; words that a thread has of them. */
	static constexpr int CHUNK = LINE_BYTES / (int)sizeof(type), WORDS = CHUNK / 2 * (int)sizeof(type) / 4;
	/* So many in a wave; of a consumer in a tile; more than it has slots for. */
	static constexpr int WAVE_CHUNKS = CUT::COLS / CHUNK, CHUNKS = CUT::WAVES * WAVE_CHUNKS;
	static constexpr int CHUNKS_MORE = CHUNKS - CUT::SLOTS;
	static_assert(!C_ACROSS || A_BY_REGISTERS);
	static_assert(E != element::TF32 || !CUT::DEFERS, "registers hold no tile's results beside its sums");
};

struct work {
	CUtensorMap a, b, c;
	gemm_operand c_at; /* where `c` is, for single elements */
	epilogue<float> to_c;
	unsigned m, n, k_tiles;
	unsigned row_tiles, col_tiles, tiles; /* those of a cluster counted as one */
	unsigned a_batch, b_batch;            /* 0: one matrix serves all */
	unsigned parts;                       /* of K, where the cut splits it: a power of two */
};

/* Blocks of a cluster. */
template <class CUT> __host__ __device__ inline unsigned cluster_blocks(const work &w)
{
	return CUT::SPLITS > 1 ? w.parts : CUT::SHARERS;
}

#ifdef KOPS_HOPPER

struct place {
	unsigned batch, row, col;
};

/* Where this block's tile begins, of the cluster's tiles number i. */
template <class CUT> __device__ __forceinline__ place place_of(const work &w, unsigned i)
{
	unsigned rank = CUT::SHARERS > 1 ? hopper::cluster_rank() : 0;
	tile_number<unsigned> tile = tile_of_number<CUT::BAND>(i, w.row_tiles, w.col_tiles);

	return {tile.batch, (tile.row * CUT::BELOW + rank % CUT::BELOW) * CUT::ROWS,
	        (tile.col * CUT::BESIDE + rank % CUT::BESIDE) * CUT::COLS};
}

/* This block's tiles of K. */
struct span {
	unsigned begin, end;
};

template <class CUT> __device__ __forceinline__ span span_of(const work &w)
{
	if (CUT::SPLITS == 1)
		return {0, w.k_tiles};
	unsigned part = hopper::cluster_rank();
	return {part_begin(w.k_tiles, part, w.parts), part_begin(w.k_tiles, part + 1, w.parts)};
}

/* ---- Bringing ---- */

/*
 * ALL rows of A or columns of B from `first` on, TILE_DEPTH of K from k on. SHARERS: each, by its rank, brings
 * a part of them, to the same place in each.
 */
template <bool ACROSS, int BOX, int ALL, int SHARERS>
__device__ __forceinline__ void fetch(uint32_t to, const CUtensorMap *map, unsigned first, unsigned k,
                                      unsigned batch, uint32_t barrier, unsigned rank)
{
	constexpr int PART = ALL / SHARERS;
	static_assert(PART % BOX == 0);

	if constexpr (SHARERS > 1) {
		first += rank * PART;
		to += rank * PART * LINE_BYTES;
	}
#pragma unroll
	for (int i = 0; i < PART; i += BOX) {
		int x = (int)(ACROSS ? first + i : k), y = (int)(ACROSS ? k : first + i);
		if constexpr (SHARERS > 1)
			hopper::copy_box_to((1 << SHARERS) - 1, to + i * LINE_BYTES, map, x, y, (int)batch,
			                    barrier);
		else
			hopper::copy_box(to + i * LINE_BYTES, map, x, y, (int)batch, barrier);
	}
}

/* One thread. */
template <class F> __device__ __forceinline__ void produce(const work &w, pipeline<typename F::CUT> r)
{
	using CUT = typename F::CUT;
	unsigned rank = CUT::SHARERS > 1 ? hopper::cluster_rank() : 0, blocks = cluster_blocks<CUT>(w);
	span span = span_of<CUT>(w);

	for (tile_walk<unsigned> walk(blocks); walk.tile < w.tiles; walk.step()) {
		place at = place_of<CUT>(w, walk.tile);
#pragma unroll 1
		for (unsigned k = span.begin; k < span.end; k++, r.step()) {
			hopper::barrier_wait(r.empty(), r.parity ^ 1);
			hopper::barrier_expect(r.full(), CUT::STAGE_BYTES);
			fetch<F::A_ACROSS, F::A_BOX, CUT::ROWS, CUT::BESIDE>(
			    r.bytes(), &w.a, at.row, k * F::TILE_DEPTH, at.batch * w.a_batch, r.full(), rank);
			fetch<F::B_ACROSS, F::B_BOX, CUT::COLS, CUT::BELOW>(
			    r.bytes() + CUT::A_BYTES, &w.b, at.col, k * F::TILE_DEPTH, at.batch * w.b_batch,
			    r.full(), rank);
		}
	}
}

/* ---- Multiplying ---- */

/*
 * A thread's place in its wave. Where A comes by registers, each thread reads two rows of it that lie across 8
 * (of K) lines of shared memory. Two warps share 32 rows; lanes 4g … 4g + 3 have one of the rows 4g … 4g + 3,
 * each g another one, so that 32 lanes find 32 banks, here and in put_chunk(): any order of rows will do, if C
 * is written in the same.
 */
template <class F> struct lane_place {
	int warp, lane;

	__device__ lane_place() : warp(threadIdx.x % WARPGROUP / 32), lane(threadIdx.x % 32)
	{
	}
	__device__ __forceinline__ int team() const
	{
		return warp / F::TEAM;
	}
	/* Among the team's rows; half: 0 or 1, the two rows of which a thread has sums. */
	__device__ __forceinline__ int row(int half) const
	{
		int group = lane / 4;

		if (!F::A_BY_REGISTERS)
			return group + half * 8;
		return group * 4 + ((group ^ group / 4) + warp % 2 * 2 + half) % 4;
	}
	/* The first of two columns, 8 apart from the next two. */
	__device__ __forceinline__ int col() const
	{
		return lane % 4 * 2;
	}
	__device__ __forceinline__ bool leads() const
	{
		return warp % F::TEAM == 0 && lane == 0;
	}
};

template <class F> __device__ __forceinline__ uint64_t b_at(uint32_t address, int step)
{
	if constexpr (F::B_ACROSS)
		return hopper::matrix_across_at(address, F::TILE_DEPTH * LINE_BYTES) + step * 2048 / 16;
	else
		return hopper::matrix_at<LINE_BYTES>(address) + step * 32 / 16;
}

template <class F> __device__ __forceinline__ uint64_t a_at(uint32_t address, int step)
{
	if constexpr (F::A_ACROSS)
		return hopper::matrix_across_at(address, F::TILE_DEPTH * LINE_BYTES) + step * 2048 / 16;
	else
		return hopper::matrix_at<LINE_BYTES>(address) + step * 32 / 16;
}

/* This thread's numbers of a wave's tile of A that lies across: boxes of 32 rows, 8 lines of K for each step.
 */
template <class F> __device__ __forceinline__ void load_a(float (&a)[STEPS][4], uint32_t tile)
{
	lane_place<F> me;
	int k = me.lane % 4;
	uint32_t lines = tile + me.team() * F::TILE_DEPTH * LINE_BYTES + k * LINE_BYTES;

#pragma unroll
	for (int i = 0; i < 4; i++) {
		int row = me.row(i % 2), deeper = i / 2 * 4;
		uint32_t at = lines + deeper * LINE_BYTES + (row / 4 ^ k ^ deeper) * 16 + row % 4 * 4;
#pragma unroll
		for (int step = 0; step < STEPS; step++)
			a[step][i] = hopper::load_shared(at + step * 8 * LINE_BYTES);
	}
}

/* The sums of a consumer: of each wave 64 rows. */
template <class F> using wave_sums = float[F::CUT::WAVES][F::CUT::SUMS];

template <class F> __device__ __forceinline__ void settle(wave_sums<F> &sums)
{
#pragma unroll
	for (int wave = 0; wave < F::CUT::WAVES; wave++)
		hopper::settle(sums[wave]);
}

/* Begins the products of a tile of K; keep: adds them to the sums. */
template <class F>
__device__ __forceinline__ void multiply_tile(wave_sums<F> &sums, uint32_t a, uint32_t b, int keep)
{
	settle<F>(sums);
	hopper::products_begin();
#pragma unroll
	for (int step = 0; step < STEPS; step++)
#pragma unroll
		for (int wave = 0; wave < F::CUT::WAVES; wave++)
			hopper::add_products<F::E, F::A_ACROSS, F::B_ACROSS>(
			    sums[wave], a_at<F>(a + wave * WAVE_ROWS * LINE_BYTES, step), b_at<F>(b, step),
			    keep || step > 0);
	hopper::products_commit();
}

template <class F>
__device__ __forceinline__ void multiply_tile(wave_sums<F> &sums, const float (&a)[STEPS][4], uint32_t b,
                                              int keep)
{
	static_assert(F::CUT::WAVES == 1);
	settle<F>(sums);
	hopper::products_begin();
#pragma unroll
	for (int step = 0; step < STEPS; step++)
		hopper::add_products_from(sums[0], a[step], b_at<F>(b, step), keep || step > 0);
	hopper::products_commit();
}

/*
 * The sums of a consumer over all of K. The products of one tile are still under way when those of the next
 * begin, and those of the last tile when this returns: its stage. meanwhile(k): what there is to do beside
 * them.
 */
template <class F, class MEANWHILE>
__device__ __forceinline__ pipeline<typename F::CUT> add_up(wave_sums<F> &sums, pipeline<typename F::CUT> &r,
                                                            int consumer, unsigned k_tiles, MEANWHILE meanwhile)
{
	pipeline<typename F::CUT> last = r;

#pragma unroll 1
	for (unsigned k = 0; k < k_tiles; k++, r.step()) {
		uint32_t a = r.bytes() + consumer * F::CUT::WAVES * WAVE_ROWS * LINE_BYTES;
		uint32_t b = r.bytes() + F::CUT::A_BYTES;

		hopper::barrier_wait(r.full(), r.parity);
		multiply_tile<F>(sums, a, b, k > 0);
		meanwhile(k);
		hopper::products_wait<1>();
		settle<F>(sums);
		if (k > 0)
			release(last);
		last = r;
	}
	return last;
}

/* The same with A by registers, which are loaded for the next tile while the products of one are under way. */
template <class F>
__device__ __forceinline__ pipeline<typename F::CUT>
add_up_by_registers(wave_sums<F> &sums, pipeline<typename F::CUT> &r, int consumer, unsigned k_tiles)
{
	pipeline<typename F::CUT> last = r;
	float now[STEPS][4], next[STEPS][4] = {};

	hopper::barrier_wait(r.full(), r.parity);
	load_a<F>(now, r.bytes() + consumer * WAVE_ROWS * LINE_BYTES);
#pragma unroll 2
	for (unsigned k = 0; k < k_tiles; k++) {
		multiply_tile<F>(sums, now, r.bytes() + F::CUT::A_BYTES, k > 0);
		last = r;
		r.step();
		if (k + 1 == k_tiles)
			break;
		hopper::barrier_wait(r.full(), r.parity);
		load_a<F>(next, r.bytes() + consumer * WAVE_ROWS * LINE_BYTES);
		hopper::products_wait();
		settle<F>(sums);
		release(last);
#pragma unroll
		for (int i = 0; i < STEPS * 4; i++)
			now[i / 4][i % 4] = next[i / 4][i % 4];
	}
	return last;
}

/* ---- Writing ---- */

template <class F> __device__ __forceinline__ void team_sync(const lane_place<F> &me, int consumer)
{
	if constexpr (F::TEAM == 1)
		__syncwarp();
	else
		hopper::threads_sync<F::TEAM * 32>(1 + consumer * (WARPGROUP / 32 / F::TEAM) + me.team());
}

/* What there was in columns col and col + 1 of C, from c on. WHOLE: they exist. */
template <class F, bool WHOLE>
__device__ __forceinline__ float2 old_pair(const work &w, const typename F::type *c, unsigned row, unsigned col)
{
	if constexpr (!WHOLE)
		return make_float2(row < w.m && col < w.n ? (float)c[0] : 0,
		                   row < w.m && col + 1 < w.n ? (float)c[w.c_at.col] : 0);
	else if constexpr (F::C_ACROSS)
		return make_float2((float)c[0], (float)c[w.c_at.col]);
	else
		return load_pair(c);
}

/* values += beta * C, of which as much is loaded at once as registers hold. row, col: those of the team's
 * first; a thread has half a value of each column. */
template <class F, bool WHOLE, int VALUES>
__device__ __forceinline__ void add_old(const work &w, unsigned batch, unsigned row, unsigned col,
                                        const lane_place<F> &me, float (&values)[VALUES])
{
	constexpr int PAIRS = VALUES / 2, AT_ONCE = PAIRS < 8 ? PAIRS : 8;

#pragma unroll
	for (int pair = 0; pair < PAIRS; pair += AT_ONCE) {
		float2 old[AT_ONCE];
#pragma unroll
		for (int i = 0; i < AT_ONCE; i++) {
			unsigned r = row + me.row(i % 2), first = col + (pair + i) / 2 * 8 + me.col();
			const auto *at = element_at<typename F::type>(w.c_at, batch, r, first);
			old[i] = old_pair<F, WHOLE>(w, at, r, first);
		}
#pragma unroll
		for (int i = 0; i < AT_ONCE; i++) {
			float *v = values + (pair + i) * 2;
			v[0] = w.to_c.add_old(v[0], old[i].x);
			v[1] = w.to_c.add_old(v[1], old[i].y);
		}
	}
}

/* A thread's values of a chunk, in C's type. */
template <class F>
__device__ __forceinline__ void pack_chunk(const float (&v)[F::CHUNK / 2], uint32_t (&words)[F::WORDS])
{
	const typename F::type *type = nullptr;

#pragma unroll
	for (int i = 0; i < F::WORDS; i++)
		if constexpr (F::E == element::TF32)
			words[i] = __float_as_uint(v[i]);
		else
			words[i] = pack_pair(type, v[2 * i], v[2 * i + 1]);
}

/* The team's chunk as 128-byte lines in swizzled order, which the tensor map of C undoes. */
template <class F>
__device__ __forceinline__ void put_chunk(uint32_t slot, const lane_place<F> &me,
                                          const uint32_t (&words)[F::WORDS])
{
	if constexpr (F::E != element::TF32) {
		/* Matrices of 8 × 8: upper and lower half of eight columns, then of the next eight. */
		uint32_t line = slot + me.lane % 16 * LINE_BYTES;
#pragma unroll
		for (int j = 0; j < F::WORDS; j += 4) {
			const uint32_t pairs[4] = {words[j], words[j + 1], words[j + 2], words[j + 3]};
			hopper::store_matrices(line + ((j / 2 + me.lane / 16) ^ me.lane % 8) * 16, pairs);
		}
	} else if constexpr (F::C_ACROSS) {
#pragma unroll
		for (int i = 0; i < F::WORDS; i++) {
			int row = me.row(i / 2 % 2), col = i / 4 * 8 + me.col() + i % 2;
			hopper::store_shared(slot + col * LINE_BYTES + (row / 4 ^ col % 8) * 16 + row % 4 * 4,
			                     __uint_as_float(words[i]));
		}
	} else {
#pragma unroll
		for (int i = 0; i < F::WORDS; i += 2) {
			int row = me.row(i / 2 % 2), col = i / 4 * 8 + me.col();
			hopper::store_pair(slot + row * LINE_BYTES + (col / 4 ^ row % 8) * 16 + col % 4 * 4,
			                   __uint_as_float(words[i]), __uint_as_float(words[i + 1]));
		}
	}
}

/*
 * Whether a line of C ends within a piece of 16 bytes of this chunk: the copy engine writes whole pieces, and
 * so over what lies behind the line.
 */
template <class F> __device__ __forceinline__ bool has_ragged_end(const work &w, unsigned row, unsigned col)
{
	constexpr unsigned PIECE = 16 / sizeof(typename F::type);

	if constexpr (F::C_ACROSS)
		return w.m % PIECE != 0 && row + F::TEAM * WARP_ROWS > w.m;
	else
		return w.n % PIECE != 0 && col + F::CHUNK > w.n;
}

/* Values to C from registers, element by element. */
template <class F, int VALUES>
__device__ __forceinline__ void store_values(const work &w, unsigned batch, unsigned row, unsigned col,
                                             const lane_place<F> &me, const float (&v)[VALUES])
{
	using type = typename F::type;

#pragma unroll
	for (int i = 0; i < VALUES; i++) {
		unsigned r = row + me.row(i / 2 % 2), at = col + i / 4 * 8 + me.col() + i % 2;
		if (r < w.m && at < w.n)
			*element_at<type>(w.c_at, batch, r, at) = (type)v[i];
	}
}

/* Where a team's chunk begins: the n-th of those that the consumer has of a tile. */
template <class F> __device__ __forceinline__ place chunk_at(const place &tile, int consumer, int n)
{
	lane_place<F> me;
	int wave = consumer * F::CUT::WAVES + n / F::WAVE_CHUNKS;

	return {tile.batch, tile.row + wave * WAVE_ROWS + me.team() * F::TEAM * WARP_ROWS,
	        tile.col + n % F::WAVE_CHUNKS * F::CHUNK};
}

/* What becomes of a chunk's sums. False where there is no more to do. */
template <class F>
__device__ __forceinline__ bool finish_chunk(const work &w, const place &at, const float *sums,
                                             uint32_t (&words)[F::WORDS])
{
	lane_place<F> me;
	float values[F::CHUNK / 2];

	if (at.row >= w.m || at.col >= w.n)
		return false;
#pragma unroll
	for (int j = 0; j < F::CHUNK / 2; j++)
		values[j] = w.to_c.scale(sums[j]);
	if (w.to_c.keeps_old() && at.row + F::TEAM * WARP_ROWS <= w.m && at.col + F::CHUNK <= w.n)
		add_old<F, true>(w, at.batch, at.row, at.col, me, values);
	else if (w.to_c.keeps_old())
		add_old<F, false>(w, at.batch, at.row, at.col, me, values);
	pack_chunk<F>(values, words);
	if (has_ragged_end<F>(w, at.row, at.col)) {
		store_values<F>(w, at.batch, at.row, at.col, me, values);
		return false;
	}
	return true;
}

/* A chunk to C by way of a slot. LEFT: the slot is free once all but so many of the team's commits are read; it
 * is free anyway where `waits` is false. */
template <class F, int LEFT>
__device__ __forceinline__ void send_chunk(const work &w, const place &at, int consumer, uint32_t slot,
                                           bool waits, const uint32_t (&words)[F::WORDS])
{
	lane_place<F> me;

	if (waits) {
		if (me.leads())
			hopper::stores_await_read<LEFT>();
		team_sync<F>(me, consumer);
	}
	put_chunk<F>(slot, me, words);
	hopper::show_to_engines();
	team_sync<F>(me, consumer);
	if (me.leads()) {
		hopper::store_box(&w.c, (int)(F::C_ACROSS ? at.row : at.col),
		                  (int)(F::C_ACROSS ? at.col : at.row), (int)at.batch, slot);
		hopper::stores_commit();
	}
}

/* The n-th of so many slots of this team. */
template <class F> __device__ __forceinline__ uint32_t slot_at(uint32_t slots, int consumer, int many, int n)
{
	lane_place<F> me;

	return slots + (consumer * (WARPGROUP / 32) + me.team() * F::TEAM) * WARP_ROWS * many * LINE_BYTES +
	       n * F::SLOT_BYTES;
}

/* Where a consumer's results go by. stage: free_stage() behind the block's last tile, for the chunks beyond
 * SLOTS; else 0. */
struct way {
	uint32_t slots, stage;
};

/* A consumer's part of a tile, at once. */
template <class F>
__device__ __forceinline__ void write_sums(const work &w, const place &tile, int consumer, const way &way,
                                           const wave_sums<F> &sums)
{
	constexpr int SLOTS = F::CUT::SLOTS;

	hopper::stores_await_read<0>(); /* of the tile before, long done */
#pragma unroll
	for (int n = 0; n < F::CHUNKS; n++) {
		place at = chunk_at<F>(tile, consumer, n);
		uint32_t words[F::WORDS], slot = slot_at<F>(way.slots, consumer, SLOTS, n % SLOTS);
		const float *of = &sums[n / F::WAVE_CHUNKS][n % F::WAVE_CHUNKS * (F::CHUNK / 2)];
		if (n >= SLOTS && way.stage)
			slot = slot_at<F>(way.stage, consumer, F::CHUNKS_MORE, n - SLOTS);
		if (finish_chunk<F>(w, at, of, words))
			send_chunk<F, SLOTS - 1>(w, at, consumer, slot, n == 0 || (n >= SLOTS && !way.stage),
			                         words);
		else if (lane_place<F>().leads())
			hopper::stores_commit(); /* nothing, so that commits count chunks */
	}
}

/*
 * A thread's results of a tile of C, to be sent while the next tile's products are under way. Of 16-bit types
 * there is room for both in registers, as long as no old C and no ragged end has to be seen to.
 */
template <class F> struct outbox {
	using CUT = typename F::CUT;
	uint32_t words[F::CHUNKS][F::WORDS];
	place tile;
	bool full = false;

	__device__ __forceinline__ static bool takes(const work &w, const place &tile)
	{
		return !w.to_c.keeps_old() && !has_ragged_end<F>(w, tile.row, tile.col + CUT::COLS - F::CHUNK);
	}
	__device__ __forceinline__ void take(const work &w, const place &at, const wave_sums<F> &sums)
	{
		tile = at;
		full = true;
#pragma unroll
		for (int n = 0; n < F::CHUNKS; n++) {
			float values[F::CHUNK / 2];
#pragma unroll
			for (int j = 0; j < F::CHUNK / 2; j++)
				values[j] = w.to_c.scale(
				    sums[n / F::WAVE_CHUNKS][n % F::WAVE_CHUNKS * (F::CHUNK / 2) + j]);
			pack_chunk<F>(values, words[n]);
		}
	}
	/* The compiler would keep registers for what was in it. */
	__device__ __forceinline__ void clear()
	{
#pragma unroll
		for (int i = 0; i < F::CHUNKS * F::WORDS; i++)
			words[i / F::WORDS][i % F::WORDS] = 0;
	}
	/* The chunks from `first` to before `end`. */
	__device__ __forceinline__ void send(const work &w, int consumer, uint32_t slots, unsigned first,
	                                     unsigned end)
	{
		if (!full)
			return;
#pragma unroll
		for (int n = 0; n < F::CHUNKS; n++) {
			place at = chunk_at<F>(tile, consumer, n);
			if (first <= n && n < end && at.row < w.m && at.col < w.n)
				send_chunk<F, 0>(w, at, consumer,
				                 slot_at<F>(slots, consumer, CUT::SLOTS, n % CUT::SLOTS), true,
				                 words[n]);
		}
		full = end < F::CHUNKS;
	}
};

/* A stage that is free for results as this is the block's last tile, once it is. */
template <class F> __device__ __forceinline__ uint32_t free_stage(const pipeline<typename F::CUT> &r)
{
	static_assert(F::CHUNKS_MORE * CONSUMERS * WAVE_ROWS * LINE_BYTES <= F::CUT::STAGE_BYTES);

	hopper::barrier_wait(r.empty(), r.parity ^ 1);
	return r.bytes();
}

/* A consumer's part of the block's tiles. */
template <class F>
__device__ __forceinline__ void consume_deferring(const work &w, pipeline<typename F::CUT> r, uint32_t slots,
                                                  int consumer)
{
	using CUT = typename F::CUT;
	wave_sums<F> sums = {};
	outbox<F> box;

	for (tile_walk<unsigned> walk(CUT::SHARERS); walk.tile < w.tiles; walk.step()) {
		pipeline<CUT> last = add_up<F>(sums, r, consumer, w.k_tiles,
		                               [&](unsigned k) { box.send(w, consumer, slots, k, k + 1); });
		box.send(w, consumer, slots, w.k_tiles, F::CHUNKS);
		place tile = place_of<CUT>(w, walk.tile);
		bool over = walk.is_last_of(w.tiles);
		hopper::products_wait();
		settle<F>(sums);
		release(last);
		if (!over && box.takes(w, tile)) {
			box.take(w, tile, sums);
			continue;
		}
		write_sums<F>(w, tile, consumer, {slots, over ? free_stage<F>(r) : 0}, sums);
		box.clear();
	}
	hopper::stores_await_read<0>();
}

/* A consumer's sums of so many tiles of K, whose stages are free then. */
template <class F>
__device__ __forceinline__ void sum_up(wave_sums<F> &sums, pipeline<typename F::CUT> &r, int consumer,
                                       unsigned k_tiles)
{
	pipeline<typename F::CUT> last = r;

	if constexpr (F::A_BY_REGISTERS)
		last = add_up_by_registers<F>(sums, r, consumer, k_tiles);
	else
		last = add_up<F>(sums, r, consumer, k_tiles, [](unsigned) {});
	hopper::products_wait();
	settle<F>(sums);
	release(last);
}

/* As consume_deferring(), with all results written before the next tile's products. */
template <class F>
__device__ __forceinline__ void consume(const work &w, pipeline<typename F::CUT> r, uint32_t slots,
                                        int consumer)
{
	using CUT = typename F::CUT;
	wave_sums<F> sums = {};

	for (tile_walk<unsigned> walk(CUT::SHARERS); walk.tile < w.tiles; walk.step()) {
		way way = {slots, 0};
		sum_up<F>(sums, r, consumer, w.k_tiles);
		if constexpr (F::E != element::TF32)
			way.stage = walk.is_last_of(w.tiles) ? free_stage<F>(r) : 0;
		write_sums<F>(w, place_of<CUT>(w, walk.tile), consumer, way, sums);
	}
	hopper::stores_await_read<0>();
}

/* ---- Parts of K ---- */

/* A thread's sums of 8 columns: two of each of two rows. */
template <class F> constexpr int GROUPS = F::CUT::SUMS / 4;

/* A group of this tile to C. */
template <class F>
__device__ __forceinline__ void store_group(const work &w, const place &tile, int consumer, unsigned group,
                                            float4 sums)
{
	float values[4] = {w.to_c.scale(sums.x), w.to_c.scale(sums.y), w.to_c.scale(sums.z),
	                   w.to_c.scale(sums.w)};
	place at = chunk_at<F>(tile, consumer, 0);
	unsigned col = at.col + group * 8;
	lane_place<F> me;

	if (w.to_c.keeps_old())
		add_old<F, false>(w, at.batch, at.row, col, me, values);
	store_values<F>(w, at.batch, at.row, col, me, values);
}

/* A consumer's part of the cluster's tile. Each block adds up some of its columns. */
template <class F>
__device__ __forceinline__ void consume_mapped(const work &w, pipeline<typename F::CUT> r, int consumer)
{
	static_assert(F::CUT::WAVES == 1);
	place tile = place_of<typename F::CUT>(w, blockIdx.x / w.parts);
	parts<typename F::CUT, GROUPS<F>> all = {r.data, w.parts};
	span span = span_of<typename F::CUT>(w);
	unsigned first = hopper::cluster_rank() * all.share();
	wave_sums<F> sums = {};

	/* Their zeros, too: ptxas would set them among the products, and let those wait for each other. */
	settle<F>(sums);
	sum_up<F>(sums, r, consumer, span.end - span.begin);
	all.exchange(sums[0]);
	for (unsigned g = 0; g < all.share(); g++)
		store_group<F>(w, tile, consumer, first + g, all.total(g));
}

#endif

/* One block per multiprocessor goes through the tiles of C. */
template <class F>
__global__ void __launch_bounds__(PRODUCT_THREADS, 1) multiply_mapped(const __grid_constant__ work w)
{
#ifdef KOPS_HOPPER
	using CUT = typename F::CUT;
	extern __shared__ char shared[];
	uint32_t slots = (hopper::shared_address(shared) + 1023) & ~1023u;
	pipeline<CUT> r(slots + CUT::SLOTS_BYTES);
	/* Of its first thread, so that the compiler sees that it is the same for a warp. */
	int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / WARPGROUP, 0);

	let_next_kernel_come();
	if (threadIdx.x == 0) {
		hopper::prefetch_map(&w.a);
		hopper::prefetch_map(&w.b);
		init_barriers(r);
	}
	if constexpr (CUT::SHARERS > 1)
		hopper::cluster_sync();
	else
		__syncthreads();
	await_kernel_before();
	if (warpgroup == 0) {
		hopper::fewer_registers<40>();
		if (threadIdx.x == 0)
			produce<F>(w, r);
		__syncwarp();
		if constexpr (CUT::SPLITS > 1)
			parts<CUT, GROUPS<F>>::sit_out();
	} else {
		hopper::more_registers<232>();
		if constexpr (CUT::SPLITS > 1)
			consume_mapped<F>(w, r, warpgroup - 1);
		else if constexpr (CUT::DEFERS)
			consume_deferring<F>(w, r, slots, warpgroup - 1);
		else
			consume<F>(w, r, slots, warpgroup - 1);
	}
	/* No block may go while another of the cluster still writes to its memory. */
	if constexpr (CUT::SHARERS > 1)
		hopper::cluster_sync();
#endif
}

} // namespace

#endif
