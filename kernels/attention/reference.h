/* reference.h: attention in float64, and how far correct results may lie from it; see struct op (kernel.h). */
#ifndef KOPS_KERNELS_ATTENTION_REFERENCE_H
#define KOPS_KERNELS_ATTENTION_REFERENCE_H

#include "attention/attention.h"

void attention_reference(const struct op_args *args);
void attention_bounds(const struct op_args *args, uint64_t row, double *ret);
void attention_further_bounds(const struct op_args *args, unsigned v, uint64_t row, double *ret);

#endif
