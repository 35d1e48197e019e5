/*
 * pairwise.h: what add, subtract and multiply share. In such ops each element of y comes from one of a and one
 * of b, with a and b repeated to y's shape.
 *
 * After pairwise_check() all three views have rank 4 and y's shape; a repeated axis has stride 0. The axes are
 * sorted by falling stride of y, and folded if all three views allow it. Dense operands become (1, 1, 1,
 * elements), and a dense matrix and a row become (1, 1, rows, columns).
 *
 * Complex views become views of their parts, with an axis of two (rules_take_parts()).
 *
 * Results are the exact ones rounded once. Kernels compute 16-bit types in f32 and round that.
 */
#ifndef KOPS_PAIRWISE_H
#define KOPS_PAIRWISE_H

#include "kernel.h"

#define PAIRWISE_OPERANDS  3
#define PAIRWISE_PART_AXES 4

extern const struct op_operand pairwise_operands[PAIRWISE_OPERANDS];
/* Of sums and differences, which the parts of complex numbers have each for themselves. */
extern const struct op_operand pairwise_summed[PAIRWISE_OPERANDS];
extern const struct part_axis pairwise_part_axes[PAIRWISE_PART_AXES];
void pairwise_shape(const struct op_args *args, struct op_shape *ret);
int pairwise_result(struct op_args *args, char why[WHY_BYTES]);
int pairwise_check(struct op_args *args, char why[WHY_BYTES]);
void pairwise_cost(const struct op_args *args, struct cost *ret);
void pairwise_reference(const struct op_args *args, double (*of)(double, double));
bool pairwise_sample(const struct op *op, kops_dtype dtype, struct op_args *args);
double pairwise_tolerance(const struct op_args *args);

/* Defines op_NAME, where `of` computes an element. */
#define PAIRWISE_OP(NAME, TITLE, ABOUT, OPERANDS, of)                                                          \
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
	                             .operands = OPERANDS,                                                     \
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

#endif
