/* next.h: finds the function that a program would call if this library were not there. */
#ifndef KOPS_LIBBLAS_NEXT_H
#define KOPS_LIBBLAS_NEXT_H

#include <stdbool.h>

/*
 * Finds `name` in another library of this process. For names without a prefix it loads a standard BLAS if none
 * is there. It looks up exactly this name, so a function with 32-bit integers never gets calls of one with
 * 64-bit integers. Returns NULL if there is none. *ret_wide: the function takes 64-bit integers under a plain
 * name.
 */
void *next_find(const char *name, bool *ret_wide);

#endif
