/* write.cuh: how the sums of a consumer get into C: by way of shared memory, or element by element. */
#ifndef KOPS_KERNELS_GEMM_TENSOR_WRITE_H
#define KOPS_KERNELS_GEMM_TENSOR_WRITE_H

#include "common/hopper/mma.cuh"
#include "common/hopper/shared.cuh"
#include "common/hopper/tma.cuh"
#include "gemm/shift.cuh"
#include "gemm/tensor/form.cuh"

namespace
{

#ifdef KOPS_HOPPER

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

/* values += bias, where the bias is a line, and all of the columns exist. */
template <class F, int VALUES>
__device__ __forceinline__ void add_line(const work &w, unsigned batch, unsigned col, const lane_place<F> &me,
                                         float (&values)[VALUES])
{
	constexpr int COLS = VALUES / 4; /* pairs of them */
	const auto *from = element_at<typename F::type>(w.to_c.bias, batch, 0, col + me.col());
	float2 bias[COLS];

#pragma unroll
	for (int i = 0; i < COLS; i++)
		bias[i] = load_pair(from + i * 8);
#pragma unroll
	for (int i = 0; i < VALUES; i += 2) {
		values[i] += bias[i / 4].x;
		values[i + 1] += bias[i / 4].y;
	}
}

template <class F, int VALUES>
__device__ __forceinline__ void add_bias(const work &w, unsigned batch, unsigned row, unsigned col,
                                         const lane_place<F> &me, float (&values)[VALUES])
{
#pragma unroll
	for (int i = 0; i < VALUES; i++) {
		unsigned r = row + me.row(i / 2 % 2), at = col + i / 4 * 8 + me.col() + i % 2;
		if (r < w.m && at < w.n)
			values[i] += (float)*element_at<typename F::type>(w.to_c.bias, batch, r, at);
	}
}

/* Bias and activation of values as add_old() has them. */
template <class F, int VALUES>
__device__ __forceinline__ void finish_values(const work &w, unsigned batch, unsigned row, unsigned col,
                                              const lane_place<F> &me, float (&values)[VALUES])
{
	if (w.to_c.has_line && col + VALUES * 2 <= w.n)
		add_line<F>(w, batch, col, me, values);
	else if (w.to_c.has_bias)
		add_bias<F>(w, batch, row, col, me, values);
	w.to_c.activate(values);
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

	if constexpr (F::C_LOOSE)
		return false; /* it is not the copy engine that writes */
	else if constexpr (F::C_ACROSS)
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
	if (w.to_c.keeps_old() && !F::C_LOOSE && at.row + F::TEAM * WARP_ROWS <= w.m &&
	    at.col + F::CHUNK <= w.n)
		add_old<F, true>(w, at.batch, at.row, at.col, me, values);
	else if (w.to_c.keeps_old())
		add_old<F, false>(w, at.batch, at.row, at.col, me, values);
	if constexpr (F::CUT::FINISHES)
		finish_values<F>(w, at.batch, at.row, at.col, me, values);
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

/* ---- To a loose C: the warps write it, in pieces that are aligned there ---- */

/* A piece of one of a warp's 16 lines, all of whose chunks are in slots. */
__device__ __forceinline__ uint4 slot_piece(uint32_t slots, int row, int piece)
{
	uint32_t line = slots + piece / 8 * WARP_ROWS * LINE_BYTES + row * LINE_BYTES;
	float4 v = hopper::load_shared_quad(line + (piece % 8 ^ row % 8) * PIECE_BYTES);

	return make_uint4(__float_as_uint(v.x), __float_as_uint(v.y), __float_as_uint(v.z),
	                  __float_as_uint(v.w));
}

/*
 * A warp's 16 rows of a tile, from slots. Its lanes write a whole line at a time: a piece of memory that is
 * written at once costs less. WHOLE: all that the tile writes are whole sectors, as tiles overlap and this is
 * neither the first nor the last of its row.
 */
template <class F, bool WHOLE>
__device__ __forceinline__ void write_loose_rows(const work &w, const place &tile, unsigned first_row,
                                                 uint32_t slots)
{
	constexpr int COLS = F::CUT::COLS, PIECES = COLS / PIECE_ELEMENTS, ROWS_AT_ONCE = 32 / PIECES;
	int lane = threadIdx.x % 32, piece = lane % PIECES, step = (int)tile_step<typename F::CUT>(w);
	bool is_first = step == COLS || tile.col == 0, is_last = step == COLS || tile.col + COLS >= w.n;
	int there = w.n - tile.col < COLS ? (int)(w.n - tile.col) : COLS;

	static_assert(F::CUT::SLOTS >= F::WAVE_CHUNKS && PIECES <= 32);
#pragma unroll 4
	for (int row = lane / PIECES; row < WARP_ROWS; row += ROWS_AT_ONCE) {
		uint16_t *to = element_at<uint16_t>(w.c_at, tile.batch, first_row + row, tile.col);
		int sector = (int)(-((uintptr_t)to / 2) % SECTOR_NUMBERS); /* the first that begins here */
		int first = is_first && !WHOLE ? 0 : sector, end = is_last && !WHOLE ? there : step + sector;
		int shift = (int)((uintptr_t)to % PIECE_BYTES / 2), begin = piece * PIECE_ELEMENTS - shift;
		/* Where nothing is shifted, both are the piece itself. */
		uint4 own = slot_piece(slots, row, piece);
		uint4 v = shifted(slot_piece(slots, row, shift && piece ? piece - 1 : piece), own,
		                  (PIECE_BYTES - shift * 2) % PIECE_BYTES);

		if (first_row + row >= w.m)
			break;
		if (WHOLE) {
			if (begin >= first && begin < end)
				*(uint4 *)(to + begin) = v;
			continue;
		}
		write_piece(to, begin, first, end, v);
		if (piece == PIECES - 1 && begin + PIECE_ELEMENTS < end)
			write_piece(to, begin + PIECE_ELEMENTS, first, end,
			            shifted(own, own, PIECE_BYTES - shift * 2));
	}
}

template <class F>
__device__ __forceinline__ void write_loose(const work &w, const place &tile, int consumer, uint32_t all_slots,
                                            const wave_sums<F> &sums)
{
	constexpr int SLOTS = F::CUT::SLOTS;
	unsigned overlap = F::CUT::COLS - tile_step<typename F::CUT>(w);
	uint32_t slots = slot_at<F>(all_slots, consumer, SLOTS, 0);

	if (tile.col > 0 && tile.col + overlap >= w.n) /* all is in the tile before */
		return;
#pragma unroll
	for (int wave = 0; wave < F::CUT::WAVES; wave++) {
		__syncwarp(); /* what was in the slots has been read */
#pragma unroll
		for (int chunk = 0; chunk < F::WAVE_CHUNKS; chunk++) {
			place at = chunk_at<F>(tile, consumer, wave * F::WAVE_CHUNKS + chunk);
			uint32_t words[F::WORDS];
			if (finish_chunk<F>(w, at, &sums[wave][chunk * (F::CHUNK / 2)], words))
				put_chunk<F>(slots + chunk * F::SLOT_BYTES, lane_place<F>(), words);
		}
		__syncwarp();
		unsigned row = chunk_at<F>(tile, consumer, wave * F::WAVE_CHUNKS).row;
		if (overlap > 0 && tile.col > 0 && tile.col + F::CUT::COLS < w.n)
			write_loose_rows<F, true>(w, tile, row, slots);
		else
			write_loose_rows<F, false>(w, tile, row, slots);
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
	__device__ __forceinline__ void take(const work &w, const place &at, int consumer,
	                                     const wave_sums<F> &sums)
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
			if constexpr (CUT::FINISHES) {
				place of_chunk = chunk_at<F>(tile, consumer, n);
				finish_values<F>(w, of_chunk.batch, of_chunk.row, of_chunk.col, lane_place<F>(),
				                 values);
			}
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

#endif

} // namespace

#endif
