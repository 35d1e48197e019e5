/* width.h: whether a BLAS takes 64-bit integers under the plain names (dgemm_, cblas_dgemm). */
#ifndef KOPS_LIBBLAS_WIDTH_H
#define KOPS_LIBBLAS_WIDTH_H

#include <stdbool.h>

/*
 * Whether the library of this BLAS function takes 64-bit integers. The library is asked, by one call of another
 * of its functions. False where it has none of those that could be asked. Raises no floating-point flags.
 */
bool width_is_64(const void *function);

#endif
