/* cublas.h: gemm's kernel of cuBLAS. */
#ifndef KOPS_KERNELS_GEMM_CUBLAS_H
#define KOPS_KERNELS_GEMM_CUBLAS_H

#include "common/cuda.h"

bool gemm_cublas_supports(const struct op_args *args, const char **ret_why_not);
CUDA_LAUNCH(gemm_cublas);

#endif
