/*
 * confined.h: launches that are kept off some multiprocessors, whatever kernel they are of.
 *
 * Blocks of a long kernel stay where they are, and a short job of another user waits for one of them to end:
 * 0.1 ms and more for cuBLAS's f64. Own kernels leave multiprocessors free themselves; launches of others go to
 * a stream of a green context, which has the rest of the multiprocessors only.
 */
#ifndef KOPS_CUDA_CONFINED_H
#define KOPS_CUDA_CONFINED_H

#include "cuda/gpu.h"
#include "kernel.h"

/* Returns how many multiprocessors are left to others: 4, or 0 where there are few. */
unsigned cuda_multiprocessors_left(void);

/* Gives each lane its confined stream. Drivers and GPUs without green contexts have none: then such launches
 * take the whole GPU. */
void cuda_confined_open(struct device_state *dev);
void cuda_confined_close(struct device_state *dev);

/*
 * What is launched between the two goes to the lane's confined stream, if it has one, in the lane's order.
 * begin() changes the launch; without it end() does nothing. 0 or KOPS_E_FAULT.
 */
int cuda_confined_begin(struct lane *lane, struct launch *launch);
int cuda_confined_end(struct lane *lane, const struct launch *launch);

#endif
