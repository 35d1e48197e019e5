/* rows.cuh: what the CUDA kernels of layer_norm and rms_norm share: the problem, and where its rows are. */
#ifndef KOPS_KERNELS_LAYER_NORM_ROWS_CUH
#define KOPS_KERNELS_LAYER_NORM_ROWS_CUH

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

/* rows = batch[0] · batch[1] · batch[2]. Strides in elements. Operands that are absent: NULL. */
struct problem {
	const void *x, *weight, *bias, *residual;
	void *y, *sum;
	uint64_t rows, cols, batch[3];
	int64_t x_batch[3], y_batch[3], residual_batch[3], sum_batch[3];
	int64_t x_col, y_col, residual_col, sum_col, weight_col, bias_col;
	bool is_rms; /* the mean is 0 */
	double eps;
	float least_squares; /* of a row that f32 does for: below, what it loses of small numbers counts */
};

void *data_of(const view *v)
{
	return view_is_absent(v) ? NULL : v->data;
}

problem problem_of(const op_args *args)
{
	const view *x = &args->views[LAYER_NORM_X], *y = &args->views[LAYER_NORM_Y];
	const view *weight = &args->views[LAYER_NORM_WEIGHT], *bias = &args->views[LAYER_NORM_BIAS];
	const view *residual = &args->views[LAYER_NORM_RESIDUAL], *sum = &args->views[LAYER_NORM_SUM];
	problem p = {};

	p.x = x->data;
	p.y = y->data;
	p.weight = data_of(weight);
	p.bias = data_of(bias);
	p.residual = data_of(residual);
	p.sum = data_of(sum);
	p.is_rms = layer_norm_is_rms(args);
	p.rows = 1;
	p.cols = x->shape[3];
	for (uint32_t i = 0; i < 3; i++) {
		p.rows *= p.batch[i] = x->shape[i];
		p.x_batch[i] = x->strides[i];
		p.y_batch[i] = y->strides[i];
		p.residual_batch[i] = residual->strides[i];
		p.sum_batch[i] = sum->strides[i];
	}
	p.x_col = x->strides[3];
	p.y_col = y->strides[3];
	p.residual_col = residual->strides[3];
	p.sum_col = sum->strides[3];
	p.weight_col = p.weight ? weight->strides[0] : 0;
	p.bias_col = p.bias ? bias->strides[0] : 0;
	p.eps = layer_norm_eps(args);
	p.least_squares = p.eps >= 1e-20 ? 0 : 1e-30f * (float)p.cols;
	return p;
}

/* Rounded to its type, as a sum that is stored is. */
template <typename T> __device__ __forceinline__ T sum_of(T x, T residual)
{
	return (T)((real<T>)x + (real<T>)residual);
}

dim3 grid_of(uint64_t blocks)
{
	return dim3((unsigned)(blocks < GRID_MAX ? blocks : GRID_MAX));
}

} // namespace

#endif
