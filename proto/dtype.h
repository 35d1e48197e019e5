/* dtype.h: what proto/dtype.def says of element types. Their numbers are enum kops_dtype in kops_types.h. */
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
/* Numbers are from the first to before the end. */
#define DTYPE_FIRST ((kops_dtype)1)
#define DTYPE_END   ((kops_dtype)(DTYPE_COUNT + 1))

/* A number that is no type has size and alignment 0, is DTYPE_REAL, accumulates in itself, "no dtype". */
size_t dtype_size(kops_dtype dtype); /* bytes */
size_t dtype_alignment(kops_dtype dtype);
enum dtype_kind dtype_kind(kops_dtype dtype);
kops_dtype dtype_accumulator(kops_dtype dtype);
const char *dtype_name(kops_dtype dtype);

#ifdef __cplusplus
}
#endif

#endif
