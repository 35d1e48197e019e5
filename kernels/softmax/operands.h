/* operands.h: the operands of softmax, for its rules and kernels. */
#ifndef KOPS_KERNELS_SOFTMAX_OPERANDS_H
#define KOPS_KERNELS_SOFTMAX_OPERANDS_H

#include "kernel.h"

enum { SOFTMAX_X, SOFTMAX_MASK, SOFTMAX_Y };

/* Returns true if a mask is added to scale * x. A row of -Inf alone is then 0, not NaN. */
static inline bool softmax_is_masked(const struct op_args *args)
{
	return !view_is_absent(&args->views[SOFTMAX_MASK]);
}

#endif
