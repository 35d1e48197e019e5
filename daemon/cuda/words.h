/* words.h: words of pinned memory by which host and GPU tell each other how far they are. */
#ifndef KOPS_CUDA_WORDS_H
#define KOPS_CUDA_WORDS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Keeps the stream busy until the word reads the number or a later one; but not for longer than most_us.
 * Enqueues.
 */
void cuda_hold(const uint32_t *word, uint32_t number, unsigned most_us, cudaStream_t stream);

/* Writes the time to the word when the stream has come so far: ns of the GPU's clock. Enqueues. */
void cuda_stamp(uint64_t *word, cudaStream_t stream);

/*
 * Writes the number to the word when the stream has come so far; by then the host sees what the stream wrote
 * before. stamp: where the time goes, as cuda_stamp() has it, which may arrive after the number; NULL:
 * nowhere. Enqueues; KOPS_E_FAULT where that fails.
 *
 * A kernel, since in a graph it is cheaper than cuStreamWriteValue32(), for which the GPU lets its other
 * streams run dry. Measured on an H200, graphs of one small kernel and this, each launched again as soon as its
 * word is there: 1, 4 and 16 out: 122, 385 and 426 thousand a second instead of 113, 246 and 250; 2.1 us a
 * launch, not 3.7. Outside of graphs a launch costs the host 1 us more than writing a value. It comes early and
 * waits for the kernel before it (kernels/common/overlap.cuh): half a microsecond less.
 */
int cuda_signal(uint32_t *word, uint32_t number, uint64_t *stamp, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
