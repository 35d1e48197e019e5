/* npy.h: headers of NumPy's .npy files, versions 1 to 3 (numpy.lib.format). */
#ifndef KOPS_CLI_FILES_NPY_H
#define KOPS_CLI_FILES_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kops.h"

#define NPY_MAGIC       "\x93NUMPY"
#define NPY_MAGIC_BYTES 6
#define NPY_HEADER_MAX  16384 /* longer headers are refused; NumPy writes 128 bytes */

struct npy_header {
	kops_dtype dtype; /* bf16 if is_untyped, else any other */
	bool is_untyped;  /* elements of two bytes, as ml_dtypes.bfloat16 is saved: .npy has no name for it */
	bool is_swapped;  /* big-endian */
	uint32_t rank;    /* 1 … KOPS_RANK_MAX; a rank of 0 is read as one element of rank 1 */
	uint64_t shape[KOPS_RANK_MAX];
	bool fortran;    /* first axis contiguous */
	uint64_t offset; /* bytes before the first element */
	uint64_t bytes;  /* of all elements */
};

/*
 * Reads the header from the first len bytes of a file (at least NPY_HEADER_MAX of them, or the whole file).
 * KOPS_E_INVALID with a sentence in why (CLI_WHY_BYTES) that does not name the file.
 */
int npy_parse(const unsigned char *bytes, size_t len, struct npy_header *ret, char *why);

bool npy_is_name(const char *path); /* it ends in .npy */

/*
 * Writes the header of a C-ordered array, and returns its length, a multiple of 64. bf16 becomes
 * ml_dtypes.bfloat16.
 */
size_t npy_format(kops_dtype dtype, uint32_t rank, const uint64_t *shape, char out[256]);

#endif
