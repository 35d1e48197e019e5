/* wgmma.h: gemm's kernel of f16, bf16 and tf32 on Hopper's tensor cores. */
#ifndef KOPS_KERNELS_GEMM_WGMMA_H
#define KOPS_KERNELS_GEMM_WGMMA_H

#include "common/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

bool gemm_wgmma_supports(const struct op_args *args, const char **ret_why_not);
double gemm_wgmma_ns(const struct op_args *args);
CUDA_LAUNCH(gemm_wgmma);

#ifdef __cplusplus
}
#endif

#endif
