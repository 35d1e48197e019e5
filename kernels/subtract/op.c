/*
 * subtract: y = a - b, element by element, with a and b repeated to y's shape (pairwise.h); f32, f64, f16 and
 * bf16. A difference is the sum of a and -b, and rounded as sums are (add/op.c).
 */
#include "common/rules.h"
#include "pairwise/pairwise.h"

static double difference(double a, double b)
{
	return a - b;
}

PAIRWISE_OP(subtract, "difference, element by element; extents of 1 are repeated",
            "y = a - b, element by element, rounded once", pairwise_summed, difference);
