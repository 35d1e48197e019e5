/* cpu_f64.h: softmax's kernel for f64 on the CPU, as struct kernel has its functions. */
#ifndef KOPS_KERNELS_SOFTMAX_CPU_F64_H
#define KOPS_KERNELS_SOFTMAX_CPU_F64_H

#include "kernel.h"

double softmax_f64_ns(const struct op_args *args);
int softmax_f64(const struct op_args *args, const struct launch *launch);

#endif
