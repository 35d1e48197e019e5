/* element.h: elements of any dtype as doubles, one at a time or along a row of a strided array. */
#ifndef KOPS_CLI_FILES_ELEMENT_H
#define KOPS_CLI_FILES_ELEMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "kops.h"

struct element_type {
	double roundoff; /* half the distance from 1 to the next number: 2^-24 for f32 */
	double largest;  /* largest finite number */
	double smallest; /* smallest normal number */
};
const struct element_type *element_type(kops_dtype dtype);
const char *element_type_name(kops_dtype dtype); /* "f32"; "?" for an invalid dtype */

/* Computes the bytes of a dense array; 0 if it has no elements. Returns false if memory could not hold it. */
bool element_bytes(kops_dtype dtype, uint32_t rank, const uint64_t *shape, uint64_t *ret_bytes);

/* Returns the element; of a complex number the real part. */
double element_get(kops_dtype dtype, const void *at);
/*
 * Rounds to nearest, ties to even. An i32 is rounded towards 0 into its range; NaN becomes 0. Sets both parts
 * of a complex number.
 */
void element_put(kops_dtype dtype, void *at, double value);

/* A strided array in this process. */
struct elements {
	const unsigned char *data; /* element (0, 0, …) */
	kops_dtype dtype;
	uint32_t rank;
	uint64_t shape[KOPS_RANK_MAX];
	int64_t strides[KOPS_RANK_MAX]; /* elements */
};

/* The elements of a view into a SHARED buffer. */
struct elements elements_of(const kops_view *view);
/* The elements of dense memory with the shape of another array. */
struct elements elements_dense(const void *data, const struct elements *shape);

/* Returns the real (0) or imaginary (1) parts of complex numbers. Part 0 of other types is the array itself. */
struct elements elements_part(const struct elements *e, unsigned part);

uint64_t elements_count(const struct elements *e);
uint64_t elements_columns(const struct elements *e); /* the last extent */
uint64_t elements_rows(const struct elements *e);    /* the product of the others */

/*
 * Converts elements [first, first + n) of row `row` to doubles. Rows are counted over all axes but the last, in
 * C order. out has room for n.
 */
void elements_row(const struct elements *e, uint64_t row, uint64_t first, uint64_t n, double *out);
/* Copies the same elements unchanged, without gaps. */
void elements_gather(const struct elements *e, uint64_t row, uint64_t first, uint64_t n, void *out);

#endif
