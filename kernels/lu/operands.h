/* operands.h: the operands of lu, also for CUDA sources. */
#ifndef KOPS_LU_OPERANDS_H
#define KOPS_LU_OPERANDS_H

#include "kernel.h"

enum { LU_A, LU_LU, LU_PIVOTS, LU_INFO };

/* Of checked args: the number of pivots of each matrix. */
static inline uint64_t lu_pivots(const struct op_args *args)
{
	const struct view *lu = &args->views[LU_LU];

	return lu->shape[2] < lu->shape[3] ? lu->shape[2] : lu->shape[3];
}

#endif
