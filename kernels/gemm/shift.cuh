/*
 * shift.cuh: lines of 16-bit numbers that begin anywhere, moved in pieces of 16 bytes that are aligned where
 * they are read and where they are written.
 */
#ifndef KOPS_KERNELS_GEMM_SHIFT_H
#define KOPS_KERNELS_GEMM_SHIFT_H

#include <stdint.h>

#include "gemm/problem.h"

namespace
{

constexpr int PIECE_BYTES = 16, PIECE_ELEMENTS = 8;

/* The piece that begins `shift` bytes into two; shift: even, below 16. */
__device__ __forceinline__ uint4 shifted(uint4 first, uint4 second, unsigned shift)
{
	uint32_t w[8] = {first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w};

	/* Selections: lanes shift by different amounts. */
#pragma unroll
	for (int i = 0; i < 6; i++)
		w[i] = shift & 8 ? w[i + 2] : w[i];
#pragma unroll
	for (int i = 0; i < 5; i++)
		w[i] = shift & 4 ? w[i + 1] : w[i];
#pragma unroll
	for (int i = 0; i < 4; i++)
		w[i] = shift & 2 ? w[i] >> 16 | w[i + 1] << 16 : w[i];
	return make_uint4(w[0], w[1], w[2], w[3]);
}

/* Writes elements [first, end) of a piece, not all of them, to where all would be aligned to 16 bytes: in as
 * few accesses as it takes. */
__device__ __forceinline__ void write_part(uint16_t *to, int first, int end, uint4 piece)
{
	const uint32_t w[4] = {piece.x, piece.y, piece.z, piece.w};
	auto has = [&](int i, int n) { return first <= i && i + n <= end; };

#pragma unroll
	for (int i = 0; i < PIECE_ELEMENTS; i += 4) {
		if (has(i, 4)) {
			*(uint64_t *)(to + i) = w[i / 2] | (uint64_t)w[i / 2 + 1] << 32;
			continue;
		}
#pragma unroll
		for (int j = i; j < i + 4; j += 2)
			if (has(j, 2))
				*(uint32_t *)(to + j) = w[j / 2];
			else if (has(j, 1))
				to[j] = (uint16_t)w[j / 2];
			else if (has(j + 1, 1))
				to[j + 1] = (uint16_t)(w[j / 2] >> 16);
	}
}

/* Writes elements [begin, begin + 8) of a line, as far as they are in [first, end). Element `begin` is aligned
 * to 16 bytes there; to: where the line begins. */
__device__ __forceinline__ void write_piece(uint16_t *to, int begin, int first, int end, uint4 piece)
{
	first = first > begin ? first - begin : 0;
	end = end - begin < PIECE_ELEMENTS ? end - begin : PIECE_ELEMENTS;
	if (end - first == PIECE_ELEMENTS)
		*(uint4 *)(to + begin) = piece;
	else if (first < end)
		write_part(to + begin, first, end, piece);
}

/* ---- Copies of operands whose lines are aligned ---- */

/* The bytes of an operand, all batches: nothing else may be read. */
struct extent {
	uintptr_t begin, end;
};

inline extent extent_of(const gemm_operand &o, uint64_t batch, uint64_t rows, uint64_t cols)
{
	int64_t low = 0, high = 0;
	const int64_t reaches[] = {(int64_t)(batch - 1) * o.batch, (int64_t)(rows - 1) * o.row,
	                           (int64_t)(cols - 1) * o.col};

	for (int64_t reach : reaches)
		*(reach < 0 ? &low : &high) += reach;
	return {(uintptr_t)o.data + (uintptr_t)(low * 2), (uintptr_t)o.data + (uintptr_t)(high * 2 + 2)};
}

/* Elements from `from` on, `there` of them, then zeros. */
__device__ __forceinline__ uint4 load_elements(uintptr_t from, int there)
{
	uint32_t w[4] = {};

#pragma unroll
	for (int i = 0; i < PIECE_ELEMENTS; i++)
		if (i < there)
			w[i / 2] |= (uint32_t) * (const uint16_t *)(from + i * 2) << i % 2 * 16;
	return make_uint4(w[0], w[1], w[2], w[3]);
}

/* As load_elements(), but what is not `there` may be anything. */
__device__ __forceinline__ uint4 load_piece(uintptr_t from, int there, const extent &s)
{
	unsigned shift = from % PIECE_BYTES;
	uintptr_t first = from - shift;
	bool two = shift + (unsigned)there * 2 > PIECE_BYTES;

	if (first < s.begin || first + (two ? 2 : 1) * PIECE_BYTES > s.end)
		return load_elements(from, there);
	uint4 v = *(const uint4 *)first;
	return shift ? shifted(v, two ? *(const uint4 *)(first + PIECE_BYTES) : v, shift) : v;
}

/* Lines of an operand, and where their copy is to be: `pitch` elements apart, a multiple of 8. */
struct padding {
	const char *from;
	char *to;
	uint64_t length, count, pieces; /* of a line; lines; of all lines of all batches */
	int64_t apart, batch_apart, pitch;
	extent readable;
};

constexpr int PADDING_THREADS = 256, PADDING_PIECES = 4; /* of a thread */

/* Pieces of the copy, a block's from `first` on. */
__device__ __forceinline__ void pad(const padding &p, uint64_t first)
{
	uint64_t in_line = (uint64_t)p.pitch / PIECE_ELEMENTS;
	uint4 v[PADDING_PIECES];

#pragma unroll
	for (int i = 0; i < PADDING_PIECES; i++) {
		uint64_t piece = first + i * PADDING_THREADS + threadIdx.x, line = piece / in_line;
		int64_t at = (int64_t)(piece - line * in_line) * PIECE_ELEMENTS, left = (int64_t)p.length - at;
		uint64_t batch = line / p.count;
		const char *from =
		    p.from +
		    ((int64_t)batch * p.batch_apart + (int64_t)(line - batch * p.count) * p.apart + at) * 2;

		if (piece < p.pieces)
			v[i] = load_piece((uintptr_t)from, left < PIECE_ELEMENTS ? (int)left : PIECE_ELEMENTS,
			                  p.readable);
	}
#pragma unroll
	for (int i = 0; i < PADDING_PIECES; i++) {
		uint64_t piece = first + i * PADDING_THREADS + threadIdx.x;

		if (piece < p.pieces)
			((uint4 *)p.to)[piece] = v[i];
	}
}

} // namespace

#endif
