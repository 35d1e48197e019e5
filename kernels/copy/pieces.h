/*
 * pieces.h: host memory is registered for DMA in pieces, and copies end at their edges. Asks no GPU.
 *
 * While CUDA registers memory, nobody can launch anything: 47 ms for 1 GiB at once (H200), 0.4 for a piece. A
 * piece ends where an address is a multiple of CUDA_PIECE_BYTES, or with the memory. A copy must not reach from
 * one registration into the next: each ends 3 us later, which is 1.7 % of a piece's time.
 */
#ifndef KOPS_KERNELS_PIECES_H
#define KOPS_KERNELS_PIECES_H

#include <stdbool.h>
#include <stdint.h>

#define CUDA_PIECE_BYTES (8ull << 20)

/* Rows that are to be copied. A pitch is at least as long as a row. */
struct rows {
	uint64_t to, from; /* addresses of the first row */
	uint64_t bytes;    /* of each row */
	uint64_t height;   /* how many */
	uint64_t to_pitch, from_pitch;
	bool to_pieces, from_pieces; /* that side is registered host memory */
	uint64_t done;               /* bytes of the first row that are copied */
};

/* Returns how many bytes there are up to the next edge. */
static inline uint64_t piece_left(uint64_t address)
{
	return CUDA_PIECE_BYTES - address % CUDA_PIECE_BYTES;
}

/* Returns true if the rows reach over an edge, if their memory is in pieces. */
static inline bool piece_ends_within(uint64_t address, uint64_t pitch, const struct rows *rows)
{
	return (rows->height - 1) * pitch + rows->bytes > piece_left(address);
}

/* Makes *ret end where a side's piece does, which it has so much of. */
static inline void rows_end_at(struct rows *ret, uint64_t left, uint64_t pitch)
{
	uint64_t fit = left < ret->bytes ? 1 : ret->height > 1 ? (left - ret->bytes) / pitch + 1 : 1;

	ret->bytes = left < ret->bytes ? left : ret->bytes;
	ret->height = fit < ret->height ? fit : ret->height;
}

/* Takes as much from the beginning of the rest as is in one piece: whole rows, or a part of one. False: there
 * is nothing left. */
static inline bool rows_take(struct rows *rest, struct rows *ret)
{
	if (rest->height == 0 || rest->bytes == 0)
		return false;
	*ret = *rest;
	ret->to += rest->done;
	ret->from += rest->done;
	ret->bytes -= rest->done;
	ret->done = 0;
	if (rest->done > 0)
		ret->height = 1;
	if (rest->to_pieces)
		rows_end_at(ret, piece_left(ret->to), rest->to_pitch);
	if (rest->from_pieces)
		rows_end_at(ret, piece_left(ret->from), rest->from_pitch);
	if (ret->bytes < rest->bytes)
		ret->height = 1;
	rest->done += ret->bytes;
	if (rest->done < rest->bytes)
		return true;
	rest->done = 0;
	rest->height -= ret->height;
	rest->to += ret->height * rest->to_pitch;
	rest->from += ret->height * rest->from_pitch;
	return true;
}

#endif
