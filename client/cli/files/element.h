/* element.h: elements of any dtype as doubles, one at a time or along a row of a strided array. */
#ifndef KOPS_CLI_FILES_ELEMENT_H
#define KOPS_CLI_FILES_ELEMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "kops.h"

struct element_type {
	double roundoff; /* half the distance from 1 to the next number: 2^-24 for f32 */
	double largest;  /* finite */
	double smallest; /* normal */
};
const struct element_type *element_type(kops_dtype dtype);
const char *element_type_name(kops_dtype dtype); /* "f32"; "?" for no dtype */

/* What a complex number is two of, side by side; of other types themselves. */
kops_dtype element_component(kops_dtype dtype);

/* Bytes of a dense array; false: more than memory can hold. Without elements it has none, whatever else. */
bool element_bytes(kops_dtype dtype, uint32_t rank, const uint64_t *shape, uint64_t *ret_bytes);

/* Of a complex number the real part. */
double element_get(kops_dtype dtype, const void *at);
/* Rounds to nearest, ties to even; an i32 towards 0, into its range, NaN to 0. Both parts of a complex number.
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

/* Of a view into a SHARED buffer. */
struct elements elements_of(const kops_view *view);
/* Of dense memory with the shape of another array. */
struct elements elements_dense(const void *data, const struct elements *shape);

/* The real (0) or imaginary (1) parts of complex numbers; of other types part 0 is the array itself. */
struct elements elements_part(const struct elements *e, unsigned part);

uint64_t elements_count(const struct elements *e);
uint64_t elements_columns(const struct elements *e); /* the last extent */
uint64_t elements_rows(const struct elements *e);    /* the product of the others */

/*
 * Elements [first, first + n) of row `row` as doubles; rows are counted over all axes but the last, in
 * C order. out has room for n.
 */
void elements_row(const struct elements *e, uint64_t row, uint64_t first, uint64_t n, double *out);
/* The same as they are, side by side. */
void elements_gather(const struct elements *e, uint64_t row, uint64_t first, uint64_t n, void *out);

#endif
