/*
 * product.h: a product as one job of kopsd: gemm, and what can be made of it.
 *
 * Everything is column-major here; a row-major product is the column-major one of the transposed matrices.
 */
#ifndef KOPS_LIBBLAS_PRODUCT_H
#define KOPS_LIBBLAS_PRODUCT_H

#include <stdbool.h>
#include <stdint.h>

#include "copy.h"
#include "kops.h"
#include "routine.h"

/* A matrix as stored, or many. */
struct operand {
	const void *data;
	const void *const *each; /* in a batch, of each product; then there is no data */
	int64_t ld;
	/* a, b: a symmetric matrix of which this triangle is stored. c: the triangle that is computed. */
	enum triangle triangle;
};

/* c = alpha * op(a) * op(b) + beta * c, where op(a) is m × k and op(b) k × n. */
struct product {
	kops_dtype dtype;
	bool invalid; /* an unknown transposition, triangle, side or order */
	bool trans_a, trans_b;
	int64_t batch; /* products of one shape, 0 for a single one */
	int64_t m, n, k;
	double alpha, beta;
	struct operand a, b, c;
};

/* Whether kopsd would be asked now. If not, call->outcome says why. */
bool product_is_wanted(const struct product *product, struct call *call);

/* True: kopsd computed it. False: c is as it was, and the next BLAS has to; call->outcome says why. */
bool product_compute(const struct product *product, struct call *call);

#endif
