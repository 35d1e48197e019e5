/* cpu_f64.h: softmax's vectorised kernel on the CPU for f64. */
#ifndef KOPS_KERNELS_SOFTMAX_CPU_F64_H
#define KOPS_KERNELS_SOFTMAX_CPU_F64_H

#include "kernel.h"

/* time_ns and launch of struct kernel; the kernel needs no workspace. */
double softmax_f64_ns(const struct op_args *args);
int softmax_f64(const struct op_args *args);

#endif
