/* rows.cuh: what the CUDA kernels of layer_norm share: the problem, and where its rows are. */
#ifndef KOPS_KERNELS_LAYER_NORM_ROWS_H
#define KOPS_KERNELS_LAYER_NORM_ROWS_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>
#include <string.h>

#include "common/launch.cuh"
#include "common/rows.cuh"
#include "layer_norm/layer_norm.h"

namespace
{

constexpr uint64_t GRID_MAX = 1u << 16; /* blocks; they then take further rows */

/* rows = batch[0] · batch[1] · batch[2]. Strides in elements. weight and bias: NULL where there is none. */
struct problem {
	const void *x, *weight, *bias;
	void *y;
	uint64_t rows, cols, batch[3];
	int64_t x_batch[3], y_batch[3], x_col, y_col, weight_col, bias_col;
	double eps;
	float least_squares; /* of a row that f32 does for: below, what it loses of small numbers counts */
};

problem problem_of(const op_args *args)
{
	const view *x = &args->views[LAYER_NORM_X], *y = &args->views[LAYER_NORM_Y];
	const view *weight = &args->views[LAYER_NORM_WEIGHT], *bias = &args->views[LAYER_NORM_BIAS];
	problem p = {};

	p.x = x->data;
	p.y = y->data;
	p.weight = view_is_absent(weight) ? NULL : weight->data;
	p.bias = view_is_absent(bias) ? NULL : bias->data;
	p.rows = 1;
	p.cols = x->shape[3];
	for (uint32_t i = 0; i < 3; i++) {
		p.rows *= p.batch[i] = x->shape[i];
		p.x_batch[i] = x->strides[i];
		p.y_batch[i] = y->strides[i];
	}
	p.x_col = x->strides[3];
	p.y_col = y->strides[3];
	p.weight_col = p.weight ? weight->strides[0] : 0;
	p.bias_col = p.bias ? bias->strides[0] : 0;
	p.eps = layer_norm_eps(args);
	p.least_squares = p.eps >= 1e-20 ? 0 : 1e-30f * (float)p.cols;
	return p;
}

dim3 grid_of(uint64_t blocks)
{
	return dim3((unsigned)(blocks < GRID_MAX ? blocks : GRID_MAX));
}

} // namespace

#endif
