/* ring.h: softmax's kernel for long rows of matrices. */
#ifndef KOPS_KERNELS_SOFTMAX_RING_H
#define KOPS_KERNELS_SOFTMAX_RING_H

#include "common/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether rows are as long as this asks and the GPU can do it; nothing else is looked at. */
bool softmax_ring_takes(const struct op_args *args, const char **ret_why_not);
uint64_t softmax_ring_workspace(const struct op_args *args);
CUDA_LAUNCH(softmax_ring);

#ifdef __cplusplus
}
#endif

#endif
