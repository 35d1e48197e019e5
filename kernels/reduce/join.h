/* join.h: what kinds of reductions make of two elements, or of the results of two parts. */
#ifndef KOPS_REDUCE_JOIN_H
#define KOPS_REDUCE_JOIN_H

#include <math.h>

#include "kernel.h"

/* What is known of some elements of a row; index is arg_reduce's. */
struct reduce_found {
	double value;
	int64_t index;
};

/* Such results are elements, so nothing is rounded. */
static inline bool reduce_is_extreme(kops_reduction kind)
{
	return kind == KOPS_MAX || kind == KOPS_MIN;
}

/* The result of no elements; a mean is a sum that is scaled. */
static inline double reduce_nothing(kops_reduction kind)
{
	switch (kind) {
	case KOPS_MAX:
		return -(double)INFINITY;
	case KOPS_MIN:
		return (double)INFINITY;
	case KOPS_PROD:
		return 1;
	case KOPS_SUM:
	case KOPS_MEAN:
		break;
	}
	return 0;
}

/* The largest and the smallest are NaN if one is. */
static inline double reduce_join(kops_reduction kind, double a, double b)
{
	switch (kind) {
	case KOPS_MAX:
		return a > b || isnan(a) ? a : b;
	case KOPS_MIN:
		return a < b || isnan(a) ? a : b;
	case KOPS_PROD:
		return a * b;
	case KOPS_SUM:
	case KOPS_MEAN:
		break;
	}
	return a + b;
}

#endif
