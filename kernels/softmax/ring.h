/* ring.h: softmax's kernel for long rows of matrices. */
#ifndef KOPS_KERNELS_SOFTMAX_RING_H
#define KOPS_KERNELS_SOFTMAX_RING_H

#include "common/cuda.h"
#include "softmax/operands.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns true if rows are long enough for this kernel and the GPU can run it; checks nothing else. */
bool softmax_ring_takes(const struct op_args *args, const char **ret_why_not);
uint64_t softmax_ring_workspace(const struct op_args *args);
CUDA_LAUNCH(softmax_ring);

#ifdef __cplusplus
}
#endif

#endif
