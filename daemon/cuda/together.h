/* together.h: small ops of a run that are alike, by one launch. */
#ifndef KOPS_CUDA_TOGETHER_H
#define KOPS_CUDA_TOGETHER_H

#include "cuda/gpu.h"

/* How many ops of the run from the next on may be one launch. */
unsigned cuda_together_size(const struct run *run);
/* The next op, and of the n - 1 behind it those that are like it by where their operands are now, too. */
int cuda_together_launch(struct lane *lane, struct out *out, unsigned n);

#endif
