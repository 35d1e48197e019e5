/*
 * elementwise.h: what the kernels share of ops whose elements of y each come from one element of each input:
 * the CPU's loops over the views (cpu.c), and the times of the CUDA kernels (cuda.c;
 * elementwise.cuh has the kernels).
 */
#ifndef KOPS_ELEMENTWISE_H
#define KOPS_ELEMENTWISE_H

#include "kernel.h"

#define ELEMENTWISE_INPUTS_MAX 2

/* ---- For cpu.c ---- */

/*
 * Computes n elements side by side at y. Input i is an array at x[i], or one element there if repeats[i]. y may
 * be the same array as an input.
 */
typedef void elementwise_row(const void *ctx, void *y, const void *const x[ELEMENTWISE_INPUTS_MAX],
                             const bool repeats[ELEMENTWISE_INPUTS_MAX], int64_t n);

/*
 * Computes all rows, in threads. views: the inputs, then y, all of rank 4, one type and y's shape; a repeated
 * axis of an input has stride 0. Fastest with axes that rules_order() sorted and rules_fold() joined.
 */
void elementwise_run(const struct view *views, unsigned n_inputs, elementwise_row *row, const void *ctx);

/* For time_ns, with the time that one thread takes for an element in the cache. */
double elementwise_cpu_ns(const struct op_args *args, const struct view *views, unsigned n_inputs,
                          double element_ns);

/* ---- For cuda.c ---- */

/* One element for each thread; one access of 16 bytes of each view, or four. */
double elementwise_scalar_ns(const struct op_args *args);
double elementwise_float4_ns(const struct op_args *args);
double elementwise_float4x_ns(const struct op_args *args);

#endif
