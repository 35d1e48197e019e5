/*
 * crowd.h: small ops of several runs that are alike, by one launch.
 *
 * Runs of one small op each that differ in addresses only are held back until poll(), as the crowd. Crowds that
 * come again and again are launched as graphs whose kernels look up the addresses: to set the kernel's
 * parameters anew would cost as much as a launch.
 */
#ifndef KOPS_CUDA_CROWD_H
#define KOPS_CUDA_CROWD_H

#include "cuda/gpu.h"

/* What the graphs need; of a device that opens, or closes. */
cudaError_t cuda_crowd_open(struct device_state *dev);
void cuda_crowd_close(struct device_state *dev);

/* Whether the run may be held back at all. */
bool cuda_crowd_suits(const struct device_state *dev, struct run *run);
/* Whether such a run can go with those that are held back. */
bool cuda_crowd_takes(struct device_state *dev, const struct run *run);
/* Holds such a run back. False: out of memory. */
bool cuda_crowd_join(struct device_state *dev, struct run *run);
/*
 * Where there are idle lanes for all, each run is better off as a graph on one of them: the host takes a third
 * of the time of a launch for each, and they run side by side. Returns how many these are, which are held back
 * no longer.
 */
unsigned cuda_crowd_dissolve(struct device_state *dev, struct run *ret_runs[CUDA_LANES_SHORT]);
/* Starts all that is held back, by one launch. */
void cuda_crowd_start(struct device_state *dev);

#endif
