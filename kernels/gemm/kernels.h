/* kernels.h: gemm's CUDA kernels whose host side is more than a launch, for the table in cuda.c. */
#ifndef KOPS_KERNELS_GEMM_KERNELS_H
#define KOPS_KERNELS_GEMM_KERNELS_H

#include "common/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- cublas.c ---- */

bool gemm_cublas_supports(const struct op_args *args, const char **ret_why_not);
uint64_t gemm_cublas_workspace(const struct op_args *args);
double gemm_cublas_first_ns(const struct op_args *args);
CUDA_LAUNCH(gemm_cublas);

/*
 * finish.cu: C = activation(sum + beta * C + bias). sums: alpha * A * B, without gaps in the order of
 * gemm_by_rows(); NULL: C holds alpha * A * B + beta * C. Returns a status.
 */
int gemm_finish(const struct op_args *args, const float *sums, cudaStream_t stream);

/* ---- simt.cu: plain FMAs on Hopper ---- */

CUDA_LAUNCH(gemm_simt);
uint64_t gemm_simt_workspace(const struct op_args *args);
double gemm_simt_ns(const struct op_args *args);
unsigned gemm_simt_together_max(const struct op_args *args);
CUDA_TOGETHER(gemm_simt_together);

/* simt_large.cu, its kernel for large products: the same three of it. K is not 0. */
uint64_t gemm_simt_large_workspace(const struct op_args *args);
double gemm_simt_large_ns(const struct op_args *args);
/* False, and nothing of C is written, where the copy engine cannot read the operands at their addresses. */
bool gemm_simt_large(const struct op_args *args, const struct launch *launch, int *ret_status);

/* ---- f16x3.cu: f32 accuracy on tensor cores ---- */

bool gemm_f16x3_supports(const struct op_args *args, const char **ret_why_not);
double gemm_f16x3_ns(const struct op_args *args);
uint64_t gemm_f16x3_workspace(const struct op_args *args);
uint64_t gemm_f16x3_kept_bytes(const struct op_args *whole, const struct op_cut *cut);
double gemm_f16x3_kept_ns(const struct op_args *whole, const struct op_args *part, const struct op_args *fresh);
CUDA_LAUNCH(gemm_f16x3);

bool gemm_bf16x6_supports(const struct op_args *args, const char **ret_why_not);
double gemm_bf16x6_ns(const struct op_args *args);
uint64_t gemm_bf16x6_workspace(const struct op_args *args);
CUDA_LAUNCH(gemm_bf16x6);

/* ---- complex/real.cu: c64 by f16x3 ---- */

bool gemm_real_supports(const struct op_args *args, const char **ret_why_not);
/* Whatever its size, and whatever f16x3 says. */
bool gemm_real_takes(const struct op_args *args, const char **ret_why_not);
double gemm_real_ns(const struct op_args *args);
uint64_t gemm_real_workspace(const struct op_args *args);
CUDA_LAUNCH(gemm_real);

/* ---- wgmma.cu: f16, bf16 and tf32 on Hopper's tensor cores ---- */

bool gemm_wgmma_supports(const struct op_args *args, const char **ret_why_not);
double gemm_wgmma_ns(const struct op_args *args);
uint64_t gemm_wgmma_workspace(const struct op_args *args);
CUDA_LAUNCH(gemm_wgmma);

/* ---- small.cu: small products of f16 and bf16 on tensor cores ---- */

double gemm_small_ns(const struct op_args *args);
CUDA_LAUNCH(gemm_small);
unsigned gemm_small_together_max(const struct op_args *args);
CUDA_TOGETHER(gemm_small_together);

/* ---- shifted.cu: products of f16 and bf16 that memory bounds, whose lines begin anywhere, on tensor cores
 * ---- */

bool gemm_shifted_supports(const struct op_args *args, const char **ret_why_not);
double gemm_shifted_ns(const struct op_args *args);
uint64_t gemm_shifted_workspace(const struct op_args *args);
CUDA_LAUNCH(gemm_shifted);

/* ---- ragged.cu: products of f16 and bf16 whose lines begin anywhere, on tensor cores ---- */
bool gemm_ragged_supports(const struct op_args *args, const char **ret_why_not);
double gemm_ragged_ns(const struct op_args *args);
uint64_t gemm_ragged_workspace(const struct op_args *args);
CUDA_LAUNCH(gemm_ragged);

#ifdef __cplusplus
}
#endif

#endif
