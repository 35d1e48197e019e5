/*
 * enqueue.h: what a run puts on its stream.
 *
 * A run is enqueued in slices of some PART_US, most in one: uploads, kernels, downloads, and last the number of
 * the slice, written by the GPU into a word of pinned memory.
 */
#ifndef KOPS_CUDA_ENQUEUE_H
#define KOPS_CUDA_ENQUEUE_H

#include "cuda/gpu.h"

/* The next slice of a run, or its graph. 0, KOPS_E_NOMEM or KOPS_E_FAULT, perhaps with a sentence in the run.
 */
int cuda_enqueue(struct device_state *dev, struct lane *lane, struct out *out);

/* The end of a slice, failed ones included: what they enqueued has to be through first. */
cudaError_t cuda_enqueue_end(struct device_state *dev, struct lane *lane, struct out *out);

#endif
