/* f32_matrix.h: dense matrices for tests of kernels for products of f32. */
#ifndef KOPS_EMULATED_F32_MATRIX_H
#define KOPS_EMULATED_F32_MATRIX_H

#include "kernel.h"

/* As gemm's check() leaves them: in a batch of one. */
static inline struct view f32_matrix(float *data, uint64_t rows, uint64_t cols, bool by_columns)
{
	struct view v = {.data = data, .dtype = KOPS_F32, .rank = 3, .shape = {1, rows, cols}};

	v.strides[0] = (int64_t)(rows * cols);
	v.strides[1] = by_columns ? 1 : (int64_t)cols;
	v.strides[2] = by_columns ? (int64_t)rows : 1;
	return v;
}

#endif
