/* split.h: how the CUDA kernel of search divides its work, computed alike for the workspace and the launch. */
#ifndef KOPS_KERNELS_SEARCH_SPLIT_H
#define KOPS_KERNELS_SEARCH_SPLIT_H

#include "common/cuda.h"
#include "search/search.h"

#define SEARCH_TOGETHER 8    /* queries of a block */
#define SEARCH_BLOCKS   2    /* that a multiprocessor holds */
#define SEARCH_TILE     256  /* rows that a block scores before it looks for the best */
#define SEARCH_PIECE    1024 /* rows that are worth a block */

/* Groups of queries, and pieces of `chunk` rows of the base. */
struct search_split {
	uint64_t queries, rows, columns, groups, pieces, chunk;
};

static inline struct search_split search_split_of(const struct op_args *args)
{
	const struct view *q = &args->views[SEARCH_QUERIES];
	int sms = cuda_device_attribute(cudaDevAttrMultiProcessorCount);
	struct search_split s = {q->shape[0], args->views[SEARCH_BASE].shape[0], q->shape[1], 0, 1, 0};
	uint64_t blocks = (uint64_t)(sms > 0 ? sms : 1) * SEARCH_BLOCKS;

	s.groups = (s.queries + SEARCH_TOGETHER - 1) / SEARCH_TOGETHER;
	if (s.groups > 0 && s.groups < blocks)
		s.pieces = blocks / s.groups;
	if (s.pieces > s.rows / SEARCH_PIECE)
		s.pieces = s.rows / SEARCH_PIECE;
	s.pieces = s.pieces > 0 ? s.pieces : 1;
	s.chunk = (s.rows / s.pieces + SEARCH_TILE) / SEARCH_TILE * SEARCH_TILE;
	s.pieces = s.rows > 0 ? (s.rows + s.chunk - 1) / s.chunk : 1;
	return s;
}

/* Returns the workspace for the best k of each query and piece. */
static inline uint64_t search_workspace(const struct op_args *args)
{
	struct search_split s = search_split_of(args);

	return s.queries * s.pieces * search_count(args) * sizeof(uint64_t);
}

#ifdef __cplusplus
extern "C" {
#endif

/* Launches the kernel `lanes` for those queries of f32 that are not 0 in `wanted`, on the device. workspace: of
 * search_workspace(). */
int search_lanes_for(const struct op_args *args, const unsigned *wanted, void *workspace,
                     const struct launch *launch);

#ifdef __cplusplus
}
#endif

#endif
