/* form.cuh: what a product on tensor cores is compiled for, what its kernel gets, and whose tiles are which. */
#ifndef KOPS_KERNELS_GEMM_TENSOR_FORM_H
#define KOPS_KERNELS_GEMM_TENSOR_FORM_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "common/hopper/cluster.cuh"
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
	static constexpr bool FINISHES = false; /* bias and activation */
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

/*
 * The same for products with bias or activation. They have kernels of their own: code for both, though it is
 * not run, made plain products up to 5 % slower.
 */
template <class CUT> struct finishing : CUT {
	static constexpr bool FINISHES = true;
};

/* What lies how. C_ACROSS: C's lines are along M. C_LOOSE: they begin anywhere, and not at multiples of 16
 * bytes.
 */
template <class CUT_, element E_, bool A_ACROSS_, bool B_ACROSS_, bool C_ACROSS_, bool C_LOOSE_ = false>
struct form {
	using CUT = CUT_;
	using type = typename number<E_>::type;
	static constexpr element E = E_;
	static constexpr bool A_ACROSS = A_ACROSS_, B_ACROSS = B_ACROSS_, C_ACROSS = C_ACROSS_;
	static constexpr bool C_LOOSE = C_LOOSE_;
	static_assert(!C_LOOSE || E != element::TF32);
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
	CUtensorMap a, b, c; /* c: unless C is loose */
	gemm_operand c_at;   /* where `c` is, for single elements */
	epilogue<float> to_c;
	unsigned m, n, k_tiles;
	unsigned row_tiles, col_tiles, tiles; /* those of a cluster counted as one */
	unsigned a_batch, b_batch;            /* 0: one matrix serves all */
	unsigned parts;                       /* of K, where the cut splits it: a power of two */
	bool overlap;                         /* of tiles beside each other, where C is loose */
};

/*
 * Tiles of a loose C may overlap, by as much as a sector of memory has: then each sector is written by one
 * tile. A sector that is written in two parts costs as much as ten whole ones (H200, C of 5972 × 21970 in tiles
 * of 128 × 128: 1.6 TB/s, and 3.5 if they overlap).
 */
constexpr unsigned SECTOR_BYTES = 32, SECTOR_NUMBERS = SECTOR_BYTES / 2;

template <class CUT> __host__ __device__ inline unsigned tile_step(const work &w)
{
	return w.overlap ? CUT::COLS - SECTOR_NUMBERS : CUT::COLS;
}

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
template <class F> __device__ __forceinline__ place place_of(const work &w, unsigned i)
{
	using CUT = typename F::CUT;
	unsigned step = F::C_LOOSE ? tile_step<CUT>(w) : CUT::COLS;
	unsigned rank = CUT::SHARERS > 1 ? hopper::cluster_rank() : 0;
	tile_number<unsigned> tile = tile_of_number<CUT::BAND>(i, w.row_tiles, w.col_tiles);

	return {tile.batch, (tile.row * CUT::BELOW + rank % CUT::BELOW) * CUT::ROWS,
	        (tile.col * CUT::BESIDE + rank % CUT::BESIDE) * step};
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

/* The sums of a consumer: of each wave 64 rows. */
template <class F> using wave_sums = float[F::CUT::WAVES][F::CUT::SUMS];

#endif

} // namespace

#endif
