/* rules.h: the rules that layer_norm and rms_norm share (rules.c), and their description. */
#ifndef KOPS_KERNELS_LAYER_NORM_RULES_H
#define KOPS_KERNELS_LAYER_NORM_RULES_H

#include <float.h>

#include "common/rules.h"
#include "layer_norm/layer_norm.h"

int layer_norm_check(struct op_args *args, bool is_rms, char why[WHY_BYTES]);
int layer_norm_result(struct op_args *args, char why[WHY_BYTES]);
void layer_norm_cost(const struct op_args *args, struct cost *ret);
void layer_norm_reference(const struct op_args *args);
void layer_norm_bounds(const struct op_args *args, uint64_t row, double *ret);
bool layer_norm_sample(const struct op *op, kops_dtype dtype, struct op_args *args);
bool layer_norm_large_sample(const struct op *op, kops_dtype dtype, struct op_args *args);
double layer_norm_tolerance(const struct op_args *args);
uint64_t layer_norm_steps(const struct op_args *args);
void layer_norm_step_part(struct op_args *args, unsigned pass, uint64_t first, uint64_t n);
uint64_t layer_norm_carried_bytes(const struct op_args *args);

#define LAYER_NORM_VECTOR(NAME, ABOUT)                                                                         \
	{                                                                                                      \
		.name = NAME, .is_optional = true, .dtypes = RULES_FLOATS, .dtype_of = LAYER_NORM_X,           \
		.about = "one axis, as long as x's last; " ABOUT " if absent"                                  \
	}
#define LAYER_NORM_OUTPUT(NAME, OPTIONAL, ABOUT)                                                               \
	{                                                                                                      \
		.name = NAME, .role = OPERAND_OUTPUT, .is_optional = OPTIONAL, .dtypes = RULES_FLOATS,         \
		.dtype_of = LAYER_NORM_X, .in_place = 1u << LAYER_NORM_X | 1u << LAYER_NORM_RESIDUAL,          \
		.about = ABOUT                                                                                 \
	}

/* Defines op_NAME. */
#define LAYER_NORM_OP(NAME, IS_RMS, TITLE, ABOUT, NOTES)                                                       \
	static const struct op_operand operands[LAYER_NORM_OPERANDS] = {                                       \
	    [LAYER_NORM_X] = {.name = "x",                                                                     \
	                      .dtypes = RULES_FLOATS,                                                          \
	                      .dtype_of = OWN_DTYPE,                                                           \
	                      .about = "1 to 4 axes"},                                                         \
	    [LAYER_NORM_WEIGHT] = LAYER_NORM_VECTOR("weight", "ones"),                                         \
	    [LAYER_NORM_BIAS] = LAYER_NORM_VECTOR("bias", "zeros"),                                            \
	    [LAYER_NORM_RESIDUAL] =                                                                            \
	        {.name = "residual",                                                                           \
	         .is_optional = true,                                                                          \
	         .is_extra = true,                                                                             \
	         .dtypes = RULES_FLOATS,                                                                       \
	         .dtype_of = LAYER_NORM_X,                                                                     \
	         .about = "x's shape; extents of 1, and missing leading ones, are repeated; added "            \
	                  "to x before, zeros if absent"},                                                     \
	    [LAYER_NORM_Y] = LAYER_NORM_OUTPUT("y", false, "x's shape"),                                       \
	    [LAYER_NORM_SUM] = LAYER_NORM_OUTPUT("sum", true, "x's shape; x + residual, if wanted"),           \
	};                                                                                                     \
	static const struct op_attribute attributes[] = {                                                      \
	    {.name = "eps",                                                                                    \
	     .type = ATTRIBUTE_NUMBER,                                                                         \
	     .offset = offsetof(struct plain_params, numbers[LAYER_NORM_EPS]),                                 \
	     .min = 0,                                                                                         \
	     .max = (double)FLT_MAX,                                                                           \
	     .otherwise = 1e-5,                                                                                \
	     .about = IS_RMS ? "added to the mean of squares" : "added to the variance"},                      \
	};                                                                                                     \
	static int check(struct op_args *args, char why[WHY_BYTES])                                            \
	{                                                                                                      \
		return layer_norm_check(args, IS_RMS, why);                                                    \
	}                                                                                                      \
	static bool sample(kops_dtype dtype, struct op_args *args)                                             \
	{                                                                                                      \
		return layer_norm_sample(&op_##NAME, dtype, args);                                             \
	}                                                                                                      \
	static bool large_sample(kops_dtype dtype, struct op_args *args)                                       \
	{                                                                                                      \
		return layer_norm_large_sample(&op_##NAME, dtype, args);                                       \
	}                                                                                                      \
	static const struct part_axis part_axes[] = {                                                          \
	    {{0, PART_NONE, PART_NONE, 0, 0, 0}, false},                                                       \
	    {{1, PART_NONE, PART_NONE, 1, 1, 1}, false},                                                       \
	    {{2, PART_NONE, PART_NONE, 2, 2, 2}, false},                                                       \
	};                                                                                                     \
	const struct op op_##NAME = {                                                                          \
	    .name = #NAME,                                                                                     \
	    .title = TITLE,                                                                                    \
	    .about = ABOUT,                                                                                    \
	    .notes = NOTES,                                                                                    \
	    .operands = operands,                                                                              \
	    .n_operands = LAYER_NORM_OPERANDS,                                                                 \
	    .attributes = attributes,                                                                          \
	    .n_attributes = sizeof attributes / sizeof attributes[0],                                          \
	    .last_axis = AXIS_KEPT,                                                                            \
	    .part_axes = part_axes,                                                                            \
	    .n_part_axes = sizeof part_axes / sizeof part_axes[0],                                             \
	    .passes = 2,                                                                                       \
	    .steps = layer_norm_steps,                                                                         \
	    .step_part = layer_norm_step_part,                                                                 \
	    .carried_bytes = layer_norm_carried_bytes,                                                         \
	    .check = check,                                                                                    \
	    .result = layer_norm_result,                                                                       \
	    .cost = layer_norm_cost,                                                                           \
	    .reference = layer_norm_reference,                                                                 \
	    .bounds = layer_norm_bounds,                                                                       \
	    .sample = sample,                                                                                  \
	    .large_sample = large_sample,                                                                      \
	    .tolerance = layer_norm_tolerance,                                                                 \
	}

#endif
