/* number.h: real and complex numbers in float64, for references. C's own complex products look for infinities,
 * which would be slow here. */
#ifndef KOPS_NUMBER_H
#define KOPS_NUMBER_H

#include <stdbool.h>

#include "common/half.h"
#include "dtype.h"

struct number {
	double re, im;
};

static inline struct number number_load(const void *array, kops_dtype dtype, int64_t i)
{
	kops_dtype part = dtype_component(dtype);

	if (part == dtype)
		return (struct number){half_load(array, dtype, i), 0};
	return (struct number){half_load(array, part, 2 * i), half_load(array, part, 2 * i + 1)};
}

/* Of real types, the real part. */
static inline void number_store(void *array, kops_dtype dtype, int64_t i, struct number x)
{
	kops_dtype part = dtype_component(dtype);
	unsigned parts = dtype_components(dtype);

	half_store(array, part, i * parts, x.re);
	if (parts > 1)
		half_store(array, part, i * parts + 1, x.im);
}

static inline struct number number_conjugate(struct number x, bool wanted)
{
	return (struct number){x.re, wanted ? -x.im : x.im};
}

/* sum + x * y */
static inline struct number number_add_product(struct number sum, struct number x, struct number y)
{
	return (struct number){sum.re + (x.re * y.re - x.im * y.im), sum.im + (x.re * y.im + x.im * y.re)};
}

#endif
