/*
 * triangular.h: computes products with a triangular matrix (trmm) and solves systems with one (trsm), by
 * halves.
 *
 *     | A11     | | X1 |   | B1 |     X1 = A11⁻¹ B1
 *     | A21 A22 | | X2 | = | B2 |     B2 = B2 - A21 X1, a product that kopsd computes
 *                                     X2 = A22⁻¹ B2
 *
 * The halves are calls of the same function. They are halved again while kopsd would take their product, as
 * measured for gemm. The next BLAS gets the rest. Column-major, like product.h.
 */
#ifndef KOPS_LIBBLAS_TRIANGULAR_H
#define KOPS_LIBBLAS_TRIANGULAR_H

#include <stdbool.h>
#include <stdint.h>

#include "product.h"
#include "routine.h"

/* b = alpha * op(a) * b, or b * op(a) if not left; solve: by op(a)'s inverse. b is m × n, and is written. */
struct triangular {
	kops_dtype dtype;
	bool invalid;                               /* as in a product, or an unknown diagonal */
	bool solve, left, upper, trans, conj, unit; /* conj: op is also the complex conjugate */
	int64_t m, n;
	double complex alpha;
	struct operand a, b;
};

/* The exported functions of one family of names and type, for parts of a call. */
struct triangular_calls {
	void (*gemm)(const struct product *product);
	void (*triangular)(const struct triangular *part);
};

/*
 * Returns true if b is computed. Otherwise b is as it was, the next BLAS has to compute it, and call->outcome
 * says why.
 */
bool triangular_compute(const struct triangular *triangular, const struct triangular_calls *calls,
                        struct call *call);

#endif
