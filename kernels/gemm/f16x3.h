/* f16x3.h: gemm's kernels of fp32 accuracy on tensor cores. */
#ifndef KOPS_KERNELS_GEMM_F16X3_H
#define KOPS_KERNELS_GEMM_F16X3_H

#include "common/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

bool gemm_f16x3_supports(const struct op_args *args, const char **ret_why_not);
double gemm_f16x3_ns(const struct op_args *args);
uint64_t gemm_f16x3_workspace(const struct op_args *args);
CUDA_LAUNCH(gemm_f16x3);

bool gemm_bf16x6_supports(const struct op_args *args, const char **ret_why_not);
double gemm_bf16x6_ns(const struct op_args *args);
uint64_t gemm_bf16x6_workspace(const struct op_args *args);
CUDA_LAUNCH(gemm_bf16x6);

#ifdef __cplusplus
}
#endif

#endif
