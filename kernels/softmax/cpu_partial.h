/* cpu_partial.h: what pieces of a row hand on, on the CPU. peak: the x of the largest scale * x. */
#ifndef KOPS_SOFTMAX_CPU_PARTIAL_H
#define KOPS_SOFTMAX_CPU_PARTIAL_H

#include <math.h>

#include "kernel.h"

/* factor: its sign is that of scale. */
static inline struct softmax_partial softmax_no_partial(double factor)
{
	return (struct softmax_partial){factor < 0 ? (double)INFINITY : -(double)INFINITY, 0};
}

static inline void softmax_add_partial(struct softmax_partial *total, const struct softmax_partial *more,
                                       double scale)
{
	bool new_peak = scale < 0 ? more->peak < total->peak : more->peak > total->peak;
	struct softmax_partial high = new_peak ? *more : *total, low = new_peak ? *total : *more;

	*total = high;
	if (low.sum != 0)
		total->sum += low.sum * (low.peak == high.peak ? 1 : exp(scale * (low.peak - high.peak)));
}

#endif
