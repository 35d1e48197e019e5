/*
 * split.h: how the CUDA kernels of reduce and arg_reduce divide their work, computed alike for the workspace
 * and the launch, and how long that takes (cuda.c).
 */
#ifndef KOPS_KERNELS_REDUCE_SPLIT_H
#define KOPS_KERNELS_REDUCE_SPLIT_H

#include "common/cuda.h"

#define REDUCE_THREADS     256
#define REDUCE_TILE_ROWS   32    /* rows of a block of strided: one for each lane of a warp */
#define REDUCE_BLOCKS      8     /* blocks that a multiprocessor holds */
#define REDUCE_PIECE_BYTES 16384 /* bytes of a row that are worth a block */
#define REDUCE_PIECE_DEEP  64    /* elements of each row that are worth a block of strided */

/* Rows cut into `splits` pieces of `chunk` elements; the last may be smaller. 1: not cut. */
struct reduce_split {
	uint64_t rows, columns, chunk;
	uint32_t splits;
};

/* blocks: number of thread blocks without cutting; least: smallest piece that is worth it, in elements. */
static inline struct reduce_split reduce_split_of(const struct op_args *args, uint64_t blocks, uint64_t least)
{
	const struct view *x = &args->views[0];
	int sms = cuda_device_attribute(cudaDevAttrMultiProcessorCount);
	uint64_t wanted = (uint64_t)(sms > 0 ? sms : 1) * REDUCE_BLOCKS;
	struct reduce_split s;
	uint64_t splits = blocks > 0 ? wanted / blocks : 1;

	s.rows = view_elements(&args->views[1]);
	s.columns = x->shape[x->rank - 1];
	if (splits > s.columns / least)
		splits = s.columns / least;
	s.splits = splits > 1 ? (uint32_t)splits : 1;
	s.chunk = s.columns / s.splits + (s.columns % s.splits != 0);
	return s;
}

static inline struct reduce_split reduce_split_rows(const struct op_args *args)
{
	return reduce_split_of(args, view_elements(&args->views[1]),
	                       REDUCE_PIECE_BYTES / dtype_size(args->views[0].dtype));
}

static inline struct reduce_split reduce_split_tiles(const struct op_args *args)
{
	const struct view *x = &args->views[0];
	uint64_t rows = view_elements(&args->views[1]), tile = REDUCE_TILE_ROWS, warps = REDUCE_THREADS / 32;

	if (x->rank > 1 && x->strides[x->rank - 2] == 1) /* a lane may take several rows */
		tile *= 16 / dtype_size(x->dtype);
	return reduce_split_of(args, rows / (tile * warps) + (rows % (tile * warps) != 0), REDUCE_PIECE_DEEP);
}

/* Returns the workspace for what is known of each piece. */
static inline uint64_t reduce_partials_bytes(const struct reduce_split *s, uint64_t of_piece)
{
	return s->splits > 1 ? s->rows * s->splits * of_piece : 0;
}

#ifdef __cplusplus
extern "C" {
#endif

/* For kernels that read rows whose elements are side by side: whether they can, and their time_ns. */
bool reduce_supports_rows(const struct op_args *args, const char **ret_why_not);
double reduce_split_rows_ns(const struct op_args *args, double arithmetic_ns);
/* The time_ns of kernels whose lanes are on neighbouring rows. */
double reduce_split_tiles_ns(const struct op_args *args, double arithmetic_ns);

#ifdef __cplusplus
}
#endif

#endif
