/*
 * pairwise.h: what add, subtract and multiply share. In such ops each element of y comes from one of a and one
 * of b, with a and b repeated to y's shape.
 *
 * After pairwise_check() all three views have rank 4 and y's shape; a repeated axis has stride 0. The axes are
 * sorted by falling stride of y, and folded if all three views allow it. Dense operands become (1, 1, 1,
 * elements), and a dense matrix and a row become (1, 1, rows, columns).
 *
 * Results are the exact ones rounded once. Kernels compute 16-bit types in f32 and round that.
 */
#ifndef KOPS_PAIRWISE_H
#define KOPS_PAIRWISE_H

#include "kernel.h"

#define PAIRWISE_OPERANDS  3
#define PAIRWISE_PART_AXES 4

/* ---- For op.c (rules.c) ---- */

extern const struct op_operand pairwise_operands[PAIRWISE_OPERANDS];
extern const struct part_axis pairwise_part_axes[PAIRWISE_PART_AXES];
void pairwise_shape(const struct op_args *args, struct op_shape *ret);
int pairwise_result(struct op_args *args, char why[WHY_BYTES]);
int pairwise_check(struct op_args *args, char why[WHY_BYTES]);
void pairwise_cost(const struct op_args *args, struct cost *ret);
void pairwise_reference(const struct op_args *args, double (*of)(double, double));
bool pairwise_sample(const struct op *op, kops_dtype dtype, struct op_args *args);
double pairwise_tolerance(const struct op_args *args);

/* Defines op_NAME, where `of` computes an element. */
#define PAIRWISE_OP(NAME, TITLE, ABOUT, of)                                                                    \
	static void reference(const struct op_args *args)                                                      \
	{                                                                                                      \
		pairwise_reference(args, of);                                                                  \
	}                                                                                                      \
	static bool sample(kops_dtype dtype, struct op_args *args)                                             \
	{                                                                                                      \
		return pairwise_sample(&op_##NAME, dtype, args);                                               \
	}                                                                                                      \
	const struct op op_##NAME = {.name = #NAME,                                                            \
	                             .title = TITLE,                                                           \
	                             .about = ABOUT,                                                           \
	                             .operands = pairwise_operands,                                            \
	                             .n_operands = PAIRWISE_OPERANDS,                                          \
	                             .part_axes = pairwise_part_axes,                                          \
	                             .n_part_axes = PAIRWISE_PART_AXES,                                        \
	                             .shape = pairwise_shape,                                                  \
	                             .check = pairwise_check,                                                  \
	                             .result = pairwise_result,                                                \
	                             .cost = pairwise_cost,                                                    \
	                             .reference = reference,                                                   \
	                             .sample = sample,                                                         \
	                             .tolerance = pairwise_tolerance}

/* ---- For cpu.c (cpu.c) ---- */

typedef void pairwise_function(void *y, const void *a, const void *b, int64_t n);

/* Loops that write n elements at y: a and b are arrays, b is one element, a is, or both are. */
struct pairwise_loops {
	pairwise_function *arrays, *scalar, *scalar_first, *fill;
};

/* loops: indexed by dtype. */
void pairwise_compute(const struct op_args *args, const struct pairwise_loops *loops);
double pairwise_cpu_ns(const struct op_args *args);

/* ---- For cuda.c (cuda.c) ---- */

double pairwise_scalar_ns(const struct op_args *args);
double pairwise_float4_ns(const struct op_args *args);
double pairwise_float4x_ns(const struct op_args *args);

#endif
