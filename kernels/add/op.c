/*
 * add: y = a + b with a and b repeated to y's shape (pairwise.h); f32, f64, f16, bf16, c64 and c128.
 *
 * A sum in f32 rounded to a 16-bit type is the exact sum rounded once. Rounding a sum to p bits is harmless
 * after a rounding to at least 2p + 2 bits; f16 has p = 11, bf16 8. Subnormal sums are exact.
 */
#include "common/rules.h"
#include "pairwise/pairwise.h"

static double sum(double a, double b)
{
	return a + b;
}

PAIRWISE_OP(add, "sum, element by element; extents of 1 are repeated", "y = a + b, rounded once",
            pairwise_summed, sum);
