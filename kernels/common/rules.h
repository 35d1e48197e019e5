/*
 * rules.h: what the checks of several ops share (op.c; rules_outputs: operands.c). Sentences use the names of
 * kops.h: a, b, x, y.
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

/* Writes "3x4" and returns text. */
const char *rules_shape(const struct view *v, char text[RULES_SHAPE_BYTES]);

/* Sets dtype and extents to those of v, for op.shape. */
void rules_take_shape(const struct view *v, struct op_shape *ret);

/* Return 0, or KOPS_E_SHAPE or _DTYPE with a sentence. */
int rules_rank(const struct view *v, const char *name, uint32_t min, uint32_t max, char why[WHY_BYTES]);
int rules_same_shape(const struct view *x, const char *x_name, const struct view *y, const char *y_name,
                     char why[WHY_BYTES]);

/* Sets of dtypes. */
#define RULES_FLOATS  (DTYPE_BIT(KOPS_F32) | DTYPE_BIT(KOPS_F64) | DTYPE_BIT(KOPS_F16) | DTYPE_BIT(KOPS_BF16))
#define RULES_COMPLEX (DTYPE_BIT(KOPS_C64) | DTYPE_BIT(KOPS_C128))
/* The types of ops that move elements without reading them as numbers. */
#define RULES_MOVED (RULES_FLOATS | DTYPE_BIT(KOPS_I32) | RULES_COMPLEX)

/*
 * Returns KOPS_E_OVERLAP unless each element of an output has its own address, and no other operand touches it.
 * An input may be the same view if the description allows it.
 */
int rules_outputs(const struct op_args *args, char why[WHY_BYTES]);

/* For op.result: gives y the shape of a and b broadcast together. Sentences use the given names. */
int rules_broadcast(const struct view *a, const char *a_name, const struct view *b, const char *b_name,
                    struct view *y, char why[WHY_BYTES]);

/*
 * For ops whose y has x's shape without the last axis, or with one index there. rules_reduced() checks ranks of
 * 1 to 4, and gives y the rank of x. The other function is for op.result.
 */
int rules_reduced(const struct view *x, struct view *y, char why[WHY_BYTES]);
int rules_reduced_result(struct op_args *args, char why[WHY_BYTES]);

/*
 * For op.sample of ops that reduce: gives *args operand 0 of 9 dense rows of type x, and operand 1 of type y.
 * large: of few rows instead, each shared by several blocks of threads.
 */
void rules_reduced_sample(struct op_args *args, kops_dtype x, kops_dtype y, bool large);

/*
 * Adds leading axes of one index, stride 0, up to `rank`. Views without elements may have any strides; these
 * become 0, so that computing with them cannot overflow.
 */
void rules_pad_rank(struct view *v, uint32_t rank);

/*
 * Repeats v to y's shape, with this rank, by strides of 0. KOPS_E_SHAPE with a sentence, and v as it was, if an
 * extent, from the last, is neither y's nor 1.
 */
int rules_spread(struct view *v, const char *name, const struct view *y, const char *y_name, uint32_t rank,
                 char why[WHY_BYTES]);

/*
 * Sorts the axes of views of one shape by the falling strides of the last view, with axes of one index first.
 * For ops that treat every element alike. Element (0, …) stays where it is.
 */
void rules_order(struct view *const views[], unsigned n);

/*
 * Merges neighbours among the first `axes` axes that continue each other in every view; the views have these
 * extents in common. Freed axes become leading ones of one index. Ranks stay. Sets the stride of every axis of
 * one index to 0.
 */
void rules_fold(struct view *const views[], unsigned n, uint32_t axes);

/*
 * For ops that treat the parts of complex numbers alike. The first function turns complex views of rank 4 into
 * views of their parts: of real numbers, with an axis of two behind `axis` others, for which the first axis
 * makes room, of one index. KOPS_E_SHAPE with a sentence if there are too many numbers. The other function
 * returns how many axes a view may have: of complex numbers one less.
 */
int rules_take_parts(struct view *const views[], unsigned n, uint32_t axis, char why[WHY_BYTES]);
uint32_t rules_axes_max(const struct view *v);

/* Returns the bytes of the distinct elements of v: axes of stride 0 count once. */
double rules_bytes(const struct view *v);

/*
 * For op.bounds: returns how many roundings a sum in f64 over v's last axis may be off. Elements of other types
 * are less exact than f64, so the number is 0.
 */
double rules_sum_roundings(const struct view *v);

/*
 * For op.bounds: returns twice the smallest normal number of f32, or of f64, below which kernels may flush
 * results to 0.
 */
double rules_flushed(kops_dtype dtype);

/*
 * For op.carried_bytes of sums: the bytes of the parts' f32 output, for ops with a 16-bit output. The other
 * function gives a part this output.
 */
uint64_t rules_wide_bytes(const struct op_args *args);
void rules_widen(struct op_args *part);

/* For op.carried_bytes: what all rows of a view of rank 4 hand on; UINT64_MAX on overflow. */
uint64_t rules_row_bytes(const struct view *v, uint64_t of_row);

#endif
