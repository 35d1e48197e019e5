/* dtype.h: the properties of element types in proto/dtype.def. Their numbers are enum kops_dtype in
 * kops_types.h. */
#ifndef KOPS_DTYPE_H
#define KOPS_DTYPE_H

#include <stddef.h>

#include "kops_types.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef DTYPE_OF_TESTS
#define KOPS_I8 ((kops_dtype)8)
#endif

enum dtype_kind { DTYPE_REAL, DTYPE_INTEGER, DTYPE_COMPLEX };

enum {
	DTYPE_COUNT = 0
#define X(name, NAME, number, bytes, alignment, kind, accumulator) +1
#include "dtype.def"
#undef X
};
/* Types have the numbers DTYPE_FIRST to DTYPE_END - 1. */
#define DTYPE_FIRST ((kops_dtype)1)
#define DTYPE_END   ((kops_dtype)(DTYPE_COUNT + 1))

/* For a number that is no type: size and alignment 0, DTYPE_REAL, itself as accumulator, and "no dtype". */
size_t dtype_size(kops_dtype dtype); /* bytes */
size_t dtype_alignment(kops_dtype dtype);
enum dtype_kind dtype_kind(kops_dtype dtype);
kops_dtype dtype_accumulator(kops_dtype dtype);
const char *dtype_name(kops_dtype dtype);

/* The type of the two parts of complex numbers, real and imaginary, side by side in memory; other types
 * themselves. */
kops_dtype dtype_component(kops_dtype dtype);
/* 2 for complex types, 1 for others. */
unsigned dtype_components(kops_dtype dtype);

#ifdef __cplusplus
}
#endif

#endif
