/* compute.h: a product by kopsd, where that is worth it. */
#ifndef KOPS_LIBBLAS_COMPUTE_H
#define KOPS_LIBBLAS_COMPUTE_H

#include <stdbool.h>

#include "product.h"
#include "routine.h"

/* Whether kopsd would be asked now. If not, call->outcome says why. */
bool compute_is_wanted(const struct product *product, struct call *call);

/*
 * True: done. False: c is as it was, and the next BLAS has to compute it; call->outcome says why. Large
 * products go by blocks, and gemm() is called for those that kopsd fails to compute. NULL: only as a whole.
 */
bool compute_product(const struct product *product, product_function *gemm, struct call *call);

#endif
