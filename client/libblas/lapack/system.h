/*
 * system.h: factors a matrix, solves systems of linear equations with it, or inverts it, as jobs of kopsd.
 * Column-major, like product.h.
 *
 * Nothing is stored unless kopsd found all of it: where a matrix is singular or not positive definite, the next
 * library computes and leaves what LAPACK leaves then.
 */
#ifndef KOPS_LIBBLAS_SYSTEM_H
#define KOPS_LIBBLAS_SYSTEM_H

#include <stdbool.h>
#include <stdint.h>

#include "kops.h"
#include "routine.h"

enum system_method { BY_TRIANGLE, BY_CHOLESKY, BY_LU };

struct system {
	kops_dtype dtype;
	enum system_method method;
	bool invalid;          /* an unknown triangle, transposition or diagonal */
	bool factors, inverts; /* a becomes its factors, or the inverse of what it is or of what they are of */
	bool upper, unit;      /* of a triangle, and of Cholesky's factor */
	bool trans, conj;      /* op(a) * x = b; conj: op is also the complex conjugate */
	int64_t m, n;          /* rows and columns of a; equal but where lu only factors */
	bool solves;           /* there is a b, which becomes x */
	int64_t columns;       /* of b */
	void *a, *b;
	int64_t lda, ldb;
	void *pivots;       /* of lu: min(m, n) integers of the caller, which count from 1 */
	size_t pivot_bytes; /* of each: 4 or 8 */
};

/*
 * Returns true if it is computed. Otherwise nothing is changed, the next library has to compute it, and
 * call->outcome says why.
 */
bool system_compute(const struct system *system, struct call *call);

#endif
