/* cpu_f64.h: what softmax's vectorised kernel on the CPU does with f64. */
#ifndef KOPS_KERNELS_SOFTMAX_CPU_F64_H
#define KOPS_KERNELS_SOFTMAX_CPU_F64_H

#include "kernel.h"

/* As time_ns and launch of struct kernel have it; takes no workspace. */
double softmax_f64_ns(const struct op_args *args);
int softmax_f64(const struct op_args *args);

#endif
