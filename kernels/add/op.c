/*
 * add: y = a + b with a and b repeated to y's shape (pairwise.h); f32, f64, f16 and bf16.
 *
 * A sum in f32 rounded to one of the 16-bit types is the exact sum rounded once: a second rounding of a sum to
 * p bits does no harm after a first one to 2p + 2 or more, f16 has p = 11, bf16 8, and subnormal sums are
 * exact.
 */
#include "common/rules.h"
#include "pairwise/pairwise.h"

static double sum(double a, double b)
{
	return a + b;
}

PAIRWISE_OP(add, "y = a + b, rounded once", sum);
