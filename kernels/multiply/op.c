/*
 * multiply: y = a * b, element by element, with a and b repeated to y's shape (pairwise.h); f32, f64, f16 and
 * bf16.
 *
 * A product of two numbers of a 16-bit type has at most 22 bits, so f32 holds it exactly and rounds it once,
 * unless it is below f32's normal numbers. There f32 keeps multiples of 2^-149 of products of bf16: every bit
 * of those that do not round to 0 or to the smallest bf16.
 */
#include "common/rules.h"
#include "pairwise/pairwise.h"

static double product(double a, double b)
{
	return a * b;
}

PAIRWISE_OP(multiply, "product, element by element; extents of 1 are repeated",
            "y = a * b, element by element, rounded once", pairwise_operands, product);
