/*
 * first.h: gets first launches over with (kernel.h: first_ns), so that no job waits for them. A thread of the
 * device records such a launch as a graph, which is never launched: cuBLAS finds out how to compute a shape,
 * and loads the kernel, once for the process.
 */
#ifndef KOPS_CUDA_FIRST_H
#define KOPS_CUDA_FIRST_H

#include "cuda/gpu.h"

/* Starts the thread of a device whose lanes are open. KOPS_E_SYSTEM, KOPS_E_NOMEM, KOPS_E_FAULT with a sentence
 * in why. */
int cuda_first_open(struct device_state *dev, char why[WHY_BYTES]);
/* Returns when the thread has ended. */
void cuda_first_close(struct device_state *dev);

/* As driver.get_ready. Leaves some out if there are many: later runs bring them again. */
void cuda_first_get_ready(struct device_state *dev, const struct run *run);

#endif
