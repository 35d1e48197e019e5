/* compute.h: computes a product by kopsd, if that is worth it. */
#ifndef KOPS_LIBBLAS_COMPUTE_H
#define KOPS_LIBBLAS_COMPUTE_H

#include <stdbool.h>

#include "product.h"
#include "routine.h"
#include "side.h"

/*
 * Returns true if kopsd is to compute what a call asks, as its size and the times of others say. Otherwise sets
 * call->outcome. call->flops is known.
 */
bool compute_would_gain(struct call *call, enum side_kind kind, kops_dtype dtype, double multiplications,
                        double bytes);

/* Returns true if kopsd would be asked now. Otherwise call->outcome says why not. */
bool compute_is_wanted(const struct product *product, struct call *call);

/*
 * Returns true if the product is computed. Otherwise c is as it was, the next BLAS has to compute it, and
 * call->outcome says why. Large products go by blocks, and gemm() computes those that kopsd fails to; NULL:
 * only as a whole.
 */
bool compute_product(const struct product *product, product_function *gemm, struct call *call);

#endif
