/* unary_function_cpu.h: the functions of unary_function.h on arrays, as vector loops. */
#ifndef KOPS_KERNELS_UNARY_FUNCTION_CPU_H
#define KOPS_KERNELS_UNARY_FUNCTION_CPU_H

#include "elementwise/unary_function.h"

/* v[i] = function(v[i]). f64 calls the C library for what is more than a root. */
void unary_apply_f32(enum unary_function function, float *v, int64_t n);
void unary_apply_f64(enum unary_function function, double *v, int64_t n);

/* Returns the time per element on one thread, for time_ns of kernels. Measured on a Xeon of 2023. */
double unary_element_ns(enum unary_function function, kops_dtype dtype);

#endif
