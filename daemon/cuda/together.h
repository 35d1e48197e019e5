/*
 * together.h: small ops that are alike, by one launch: those of one run, and those of several.
 *
 * Runs of one small op each that differ in addresses only are held back until poll(), as the crowd.
 */
#ifndef KOPS_CUDA_TOGETHER_H
#define KOPS_CUDA_TOGETHER_H

#include "cuda/gpu.h"

/* How many ops of the run from the next on may be one launch. */
unsigned cuda_together_size(const struct run *run);
/* The next op, and of the n - 1 behind it those that are like it by where their operands are now, too. */
int cuda_together_launch(struct lane *lane, struct out *out, unsigned n);

/* Whether the run may be held back at all. */
bool cuda_crowd_suits(const struct backend_device *dev, struct run *run);
/* Whether such a run can go with those that are held back. */
bool cuda_crowd_takes(struct backend_device *dev, const struct run *run);
/* Holds such a run back. False: out of memory. */
bool cuda_crowd_join(struct backend_device *dev, struct run *run);
/*
 * Where there are idle lanes for all, each run is better off as a graph on one of them: the host takes a fifth
 * of the time for that, and they run side by side. Returns how many these are, which are held back no longer.
 */
unsigned cuda_crowd_dissolve(struct backend_device *dev, struct run *ret_runs[CUDA_LANES]);
/* Starts all that is held back, by one launch. */
void cuda_crowd_start(struct backend_device *dev);

#endif
