/* gemm.h: what gemm's files share on all devices. */
#ifndef KOPS_KERNELS_GEMM_H
#define KOPS_KERNELS_GEMM_H

#include "kernel.h"

enum { GEMM_A, GEMM_B, GEMM_BIAS, GEMM_C };

/* Returns true if more than alpha and beta makes c of the sums: a bias, an activation. */
static inline bool gemm_finishes(const struct op_args *args)
{
	return !view_is_absent(&args->views[GEMM_BIAS]) || args->params.gemm.activation != UNARY_NONE;
}

#endif
