/* reference.h: the reference of complex products, in float64. */
#ifndef KOPS_KERNELS_GEMM_COMPLEX_REFERENCE_H
#define KOPS_KERNELS_GEMM_COMPLEX_REFERENCE_H

#include "kernel.h"

/* Computes one matrix of the batch. a, b, c: its first elements. */
void gemm_reference_complex(const struct op_args *args, const char *a, const char *b, char *c);

#endif
