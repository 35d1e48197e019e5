/* rows.cuh: the rows that kernels of reductions go through (split.h), reduce's and arg_reduce's. */
#ifndef KOPS_KERNELS_REDUCE_ROWS_H
#define KOPS_KERNELS_REDUCE_ROWS_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "common/launch.cuh"
#include "common/rows.cuh"
#include "reduce/split.h"

namespace
{

constexpr unsigned THREADS = REDUCE_THREADS;
constexpr unsigned WARP = 32;
constexpr unsigned WARPS = THREADS / WARP;
constexpr uint64_t GRID_MAX = 1u << 20;

struct reduced_rows {
	const void *x;
	void *y;
	uint64_t rows, cols, batch[3];
	int64_t x_batch[3], y_batch[3], x_col;
	uint64_t chunk;
	uint32_t splits;
};

void set_rows(reduced_rows *r, const op_args *args, const reduce_split &s)
{
	const view *x = &args->views[0], *y = &args->views[1];
	uint32_t outer = x->rank - 1;

	r->x = x->data;
	r->y = y->data;
	r->rows = s.rows;
	r->cols = s.columns;
	r->chunk = s.chunk;
	r->splits = s.splits;
	r->x_col = x->strides[outer];
	for (uint32_t i = 0; i < 3; i++) {
		bool there = i + outer >= 3; /* the last `outer` of the three */
		uint32_t d = there ? i + outer - 3 : 0;

		r->batch[i] = there ? x->shape[d] : 1;
		r->x_batch[i] = there ? x->strides[d] : 0;
		r->y_batch[i] = there ? y->strides[d] : 0;
	}
}

unsigned grid_of(uint64_t work, uint64_t per_block)
{
	uint64_t blocks = (work + per_block - 1) / per_block;

	return (unsigned)(blocks < 1 ? 1 : blocks < GRID_MAX ? blocks : GRID_MAX);
}

} // namespace

#endif
