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

static inline bool gemm_is_complex(const struct op_args *args)
{
	return dtype_kind(args->views[GEMM_A].dtype) == DTYPE_COMPLEX;
}

/* Whether a and b matter: with alpha 0, or a sum of no products, they are not read. */
static inline bool gemm_has_product(const struct op_args *args)
{
	const struct gemm_params *p = &args->params.gemm;
	const struct view *a = &args->views[GEMM_A];

	return (p->alpha != 0 || p->alpha_imag != 0) && a->shape[a->rank - 1] != 0;
}

static inline bool gemm_reads_old(const struct op_args *args)
{
	return args->params.gemm.beta != 0 || args->params.gemm.beta_imag != 0;
}

#endif
