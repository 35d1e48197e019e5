/*
 * product.h: a product as one job of kopsd: gemm, and calls that can be reduced to it.
 *
 * Everything is column-major here; a row-major product is the column-major one of the transposed matrices.
 */
#ifndef KOPS_LIBBLAS_PRODUCT_H
#define KOPS_LIBBLAS_PRODUCT_H

#include <complex.h>
#include <stdbool.h>
#include <stdint.h>

#include "copy.h"
#include "kops.h"

/* A matrix as stored, or a batch of them. */
struct operand {
	const void *data;
	const void *const *each; /* the matrix of each product of a batch; data is NULL then */
	int64_t ld;
	/* a, b: a symmetric matrix of which this triangle is stored. c: the triangle that is computed. */
	enum triangle triangle;
};

/* c = alpha * op(a) * op(b) + beta * c, where op(a) is m × k and op(b) k × n. */
struct product {
	kops_dtype dtype;
	bool invalid; /* an unknown transposition, triangle, side or order */
	bool trans_a, trans_b;
	bool b_is_a;   /* one matrix is both operands, as in syrk: it is copied once */
	int64_t batch; /* number of products of one shape; 0: a single one */
	int64_t m, n, k;
	double complex alpha, beta;
	bool conj_a, conj_b; /* op is also the complex conjugate */
	/* What has a triangle is Hermitian: the other triangle is its conjugate, and the diagonal real. */
	bool hermitian;
	struct operand a, b, c;
};

/* A function that computes a product. */
typedef void product_function(const struct product *product);

/* Rows and columns of a and b as stored. */
int64_t product_rows_of_a(const struct product *product);
int64_t product_cols_of_a(const struct product *product);
int64_t product_rows_of_b(const struct product *product);
int64_t product_cols_of_b(const struct product *product);

/* Number of products, at least 1. */
int64_t product_count(const struct product *product);

bool product_is_complex(const struct product *product);

/* Returns true if both parts are. */
bool product_is_finite(double complex factor);

/* Multiplications of elements, and FLOPs, of all products of a batch; bytes that go to kopsd and back. */
double product_multiplications(const struct product *product);
double product_flops(const struct product *product);
double product_bytes(const struct product *product);

/* Returns the address of an element of an operand. */
const void *product_element(const struct product *product, const struct operand *operand, int64_t row,
                            int64_t col);

/*
 * Returns columns (or rows) begin to end of c as a product of their own. Not for a batch, a triangle or b_is_a.
 */
struct product product_part(const struct product *product, bool by_rows, int64_t begin, int64_t end);

#endif
