/* pieces.h: how layer_norm's kernel for any rows divides its work. */
#ifndef KOPS_KERNELS_LAYER_NORM_PIECES_H
#define KOPS_KERNELS_LAYER_NORM_PIECES_H

#include "common/cuda.h"
#include "layer_norm/layer_norm.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LAYER_NORM_PIECE_THREADS 256
#define LAYER_NORM_PIECE_COLUMNS 2048 /* columns that are worth a block */
#define LAYER_NORM_PIECE_BLOCKS  8    /* blocks that a multiprocessor holds */

/* Returns how many pieces a row has, so that all multiprocessors have some. */
static inline uint64_t layer_norm_pieces_of_row(const struct op_args *args)
{
	int sms = cuda_device_attribute(cudaDevAttrMultiProcessorCount);
	uint64_t most = (uint64_t)(sms > 0 ? sms : 1) * LAYER_NORM_PIECE_BLOCKS / layer_norm_rows(args);
	uint64_t worth = args->views[LAYER_NORM_X].shape[3] / LAYER_NORM_PIECE_COLUMNS;

	most = most < worth ? most : worth;
	return most > 1 ? most : 1;
}

/* Returns true if each block computes whole rows, and keeps its measures. */
static inline bool layer_norm_pieces_are_rows(const struct op_args *args)
{
	return layer_norm_pass(args) == LAYER_NORM_WHOLE && layer_norm_pieces_of_row(args) == 1;
}

/*
 * Room for the partials of all pieces and rows. If the op is cut into parts, the part brings the memory for
 * rows.
 */
static inline uint64_t layer_norm_pieces_workspace(const struct op_args *args)
{
	uint64_t rows = layer_norm_rows(args), partial = sizeof(struct layer_norm_partial);
	uint64_t found = rows * layer_norm_pieces_of_row(args) * partial;

	switch (layer_norm_pass(args)) {
	case LAYER_NORM_MEASURE:
		return found;
	case LAYER_NORM_WRITE:
		return 0;
	default:
		return layer_norm_pieces_are_rows(args) ? 0 : found + rows * partial;
	}
}

CUDA_LAUNCH(layer_norm_pieces);

#ifdef __cplusplus
}
#endif

#endif
