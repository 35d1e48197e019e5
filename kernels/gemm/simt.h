/* simt.h: gemm's kernel of plain FMAs on Hopper. */
#ifndef KOPS_KERNELS_GEMM_SIMT_H
#define KOPS_KERNELS_GEMM_SIMT_H

#include "common/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

CUDA_LAUNCH(gemm_simt);
uint64_t gemm_simt_workspace(const struct op_args *args);

/* How long it takes, by the measurements on an H200 from which it chooses its kernel. */
double gemm_simt_ns(const struct op_args *args);

/* Its kernel for large products (simt_large.cu): the same three of it. K is not 0. */
uint64_t gemm_simt_large_workspace(const struct op_args *args);
double gemm_simt_large_ns(const struct op_args *args);

/* False, and nothing of C is written, where the copy engine cannot read the operands at their addresses. */
bool gemm_simt_large(const struct op_args *args, const struct launch *launch, int *ret_status);

#ifdef __cplusplus
}
#endif

#endif
