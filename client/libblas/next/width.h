/* width.h: tells whether a BLAS takes 64-bit integers under the plain names (dgemm_, cblas_dgemm). */
#ifndef KOPS_LIBBLAS_WIDTH_H
#define KOPS_LIBBLAS_WIDTH_H

#include <stdbool.h>

/*
 * Returns true if the library of this BLAS function takes 64-bit integers. One call of another of its functions
 * tells. False if it has no function that tells. Raises no floating-point flags.
 */
bool width_is_64(const void *function);

#endif
