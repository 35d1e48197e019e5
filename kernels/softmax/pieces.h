/* pieces.h: softmax's kernel for few rows, and how it divides its work. */
#ifndef KOPS_KERNELS_SOFTMAX_PIECES_H
#define KOPS_KERNELS_SOFTMAX_PIECES_H

#include "common/cuda.h"
#include "softmax/operands.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SOFTMAX_PIECE_THREADS 256
#define SOFTMAX_PIECE_COLUMNS 2048 /* columns that are worth a block */
#define SOFTMAX_PIECE_BLOCKS  8    /* blocks that a multiprocessor holds */
#define SOFTMAX_PIECE_ROWS    (1u << 20)
#define SOFTMAX_STEP_COLUMNS  2048 /* columns that a block reads at once: eight for each thread */

static inline uint64_t softmax_rows(const struct op_args *args)
{
	const struct view *y = op_output_const(args);

	return view_elements(y) / y->shape[y->rank - 1];
}

/* Returns how many pieces a row has, so that all multiprocessors have some. */
static inline uint64_t softmax_pieces_of_row(const struct op_args *args)
{
	const struct view *y = op_output_const(args);
	int sms = cuda_device_attribute(cudaDevAttrMultiProcessorCount);
	uint64_t most = (uint64_t)(sms > 0 ? sms : 1) * SOFTMAX_PIECE_BLOCKS / softmax_rows(args);
	uint64_t worth = y->shape[y->rank - 1] / SOFTMAX_PIECE_COLUMNS;

	most = most < worth ? most : worth;
	return most > 1 ? most : 1;
}

uint64_t softmax_pieces_workspace(const struct op_args *args);
CUDA_LAUNCH(softmax_pieces);

#ifdef __cplusplus
}
#endif

#endif
