/* split.h: how the CUDA kernel of top_k divides its work, computed alike for the workspace and the launch. */
#ifndef KOPS_KERNELS_TOP_K_SPLIT_H
#define KOPS_KERNELS_TOP_K_SPLIT_H

#include "common/cuda.h"
#include "top_k/top_k.h"

#define TOP_K_THREADS      256
#define TOP_K_OF_WARP      32     /* the most that a warp finds */
#define TOP_K_WARP_COLUMNS 4096   /* of rows that a warp is given */
#define TOP_K_BLOCKS       4      /* that a multiprocessor holds */
#define TOP_K_PIECE        16384  /* elements that are worth a block */
#define TOP_K_JOINED       131072 /* entries that the pieces of a row may leave */

/* Rows cut into `splits` pieces of `chunk` elements; the last may be smaller. 1: not cut. */
struct top_k_split {
	uint64_t rows, columns, chunk;
	uint32_t splits;
	bool by_warps; /* a row for each */
};

static inline struct top_k_split top_k_split_of(const struct op_args *args)
{
	const struct view *x = &args->views[TOP_K_X], *values = &args->views[TOP_K_VALUES];
	uint64_t k = top_k_count(args), most, least = 64 * k > TOP_K_PIECE ? 64 * k : TOP_K_PIECE;
	int sms = cuda_device_attribute(cudaDevAttrMultiProcessorCount);
	struct top_k_split s = {values->shape[0] * values->shape[1] * values->shape[2], x->shape[3],
	                        x->shape[3], 1, false};

	s.by_warps = k <= TOP_K_OF_WARP && s.columns <= TOP_K_WARP_COLUMNS;
	if (s.by_warps || s.rows == 0)
		return s;
	most = (uint64_t)(sms > 0 ? sms : 1) * TOP_K_BLOCKS / s.rows;
	most = most < s.columns / least ? most : s.columns / least;
	most = most < TOP_K_JOINED / k ? most : TOP_K_JOINED / k;
	if (most < 2)
		return s;
	s.chunk = (s.columns / most + 63) / 64 * 64; /* pieces begin at whole vectors, if rows do */
	s.splits = (uint32_t)((s.columns + s.chunk - 1) / s.chunk);
	return s;
}

/* Returns the workspace for the best k of each piece. */
static inline uint64_t top_k_workspace(const struct op_args *args)
{
	const uint64_t entry = 16; /* bytes at most: select.cuh */
	struct top_k_split s = top_k_split_of(args);

	return s.splits > 1 ? s.rows * s.splits * top_k_count(args) * entry : 0;
}

#endif
