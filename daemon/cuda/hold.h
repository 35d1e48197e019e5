/* hold.h: what a timed run begins with. */
#ifndef KOPS_CUDA_HOLD_H
#define KOPS_CUDA_HOLD_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Keeps the stream busy until the word, pinned host memory, reads the number or a later one; but not for longer
 * than most_us. Enqueues.
 */
void cuda_hold(const uint32_t *word, uint32_t number, unsigned most_us, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
