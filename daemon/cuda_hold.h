/* cuda_hold.h: what a timed run begins with. */
#ifndef KOPS_CUDA_HOLD_H
#define KOPS_CUDA_HOLD_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Keeps the stream busy for so many microseconds. Enqueues. */
void cuda_hold(unsigned us, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
