/*
 * rules.h: what the checks of several ops share (op.c; rules_outputs: operands.c). Names in sentences are those
 * of kops.h: a, b, x, y.
 */
#ifndef KOPS_RULES_H
#define KOPS_RULES_H

#include "kernel.h"

/* op_gemm, …: the ops of ops[]. */
#define X(name) extern const struct op op_##name;
#include "ops.def"
#undef X

#define RULES_SHAPE_BYTES 88 /* four extents of 20 digits and their signs */

/* Writes the sentence and returns code. */
__attribute__((format(printf, 3, 4))) int rules_refuse(char why[WHY_BYTES], int code, const char *format, ...);

/* "3x4"; returns text. */
const char *rules_shape(const struct view *v, char text[RULES_SHAPE_BYTES]);

/* For op.shape: dtype and extents of v. */
void rules_take_shape(const struct view *v, struct op_shape *ret);

/* Each returns 0, or a code with its sentence: KOPS_E_SHAPE, _DTYPE, _SHAPE. */
int rules_rank(const struct view *v, const char *name, uint32_t min, uint32_t max, char why[WHY_BYTES]);
int rules_same_shape(const struct view *x, const char *x_name, const struct view *y, const char *y_name,
                     char why[WHY_BYTES]);

/* Sets of dtypes. */
#define RULES_FLOATS (DTYPE_BIT(KOPS_F32) | DTYPE_BIT(KOPS_F64) | DTYPE_BIT(KOPS_F16) | DTYPE_BIT(KOPS_BF16))
/* What ops take that move elements and do not look at them. */
#define RULES_MOVED (RULES_FLOATS | DTYPE_BIT(KOPS_I32) | DTYPE_BIT(KOPS_C64) | DTYPE_BIT(KOPS_C128))

/*
 * KOPS_E_OVERLAP unless each element of an output has an address of its own, and none is touched by another
 * operand: an input may be the same view where the description says so.
 */
int rules_outputs(const struct op_args *args, char why[WHY_BYTES]);

/* For op.result: gives y the shape that a and b, whose names are given, have when they are broadcast together.
 */
int rules_broadcast(const struct view *a, const char *a_name, const struct view *b, const char *b_name,
                    struct view *y, char why[WHY_BYTES]);

/*
 * Adds leading axes of one index, stride 0, up to `rank`. Without elements the strides may be any numbers; they
 * become 0, so that whoever computes with them need not fear overflows.
 */
void rules_pad_rank(struct view *v, uint32_t rank);

/*
 * Sorts the axes of views of one shape so that the strides of the last of them fall, axes of one
 * index first. For ops that treat every element alike. Element (0, …) stays where it is.
 */
void rules_order(struct view *const views[], unsigned n);

/*
 * Merges, among the first `axes` axes of views which have these extents in common, neighbours that
 * continue each other in every view; freed axes become leading ones of one index. Ranks stay. Sets the stride
 * of every axis of one index to 0.
 */
void rules_fold(struct view *const views[], unsigned n, uint32_t axes);

/* Bytes of the distinct elements of v: axes of stride 0 count once. */
double rules_bytes(const struct view *v);

/* For op.carried_bytes of sums: the f32 output of their parts, of ops with a 16-bit one; and giving it to such
 * a part. */
uint64_t rules_wide_bytes(const struct op_args *args);
void rules_widen(struct op_args *part);

/* For op.carried_bytes of what each row of a view of rank 4 hands on: UINT64_MAX where the product is no
 * number. */
uint64_t rules_row_bytes(const struct view *v, uint64_t of_row);

#endif
