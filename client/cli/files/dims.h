/*
 * dims.h: shapes that raw files do not tell, from their sizes and what else is known. Pure functions.
 */
#ifndef KOPS_CLI_FILES_DIMS_H
#define KOPS_CLI_FILES_DIMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "options.h"

enum dims_axis { DIMS_M, DIMS_N, DIMS_K, DIMS_AXES };

/* One operand of a product: A, B or C, as op(A) and op(B) see it. */
struct dims_file {
	const char *path; /* NULL: there is none (C without --accumulate) */
	bool raw;
	uint64_t bytes;      /* raw: size of the file */
	uint64_t rows, cols; /* not raw: known already, transposition applied */
};

/*
 * The extents of op(A) M × K, op(B) K × N, C M × N. given: -m, -n, -k. One of them fixes the others for two
 * raw files; two raw files of one square size need none. files: A, B, C. elem: bytes of an element.
 * KOPS_E_INVALID with a sentence in why (CLI_WHY_BYTES): the operand, the bytes that it has, and those that it
 * needs.
 */
int dims_product(const struct dims_file files[3], const struct opt_count given[DIMS_AXES], size_t elem,
                 uint64_t ret[DIMS_AXES], char *why);

/* rows × cols of one raw file: either fixes the other, and a square needs none. Errors as above. */
int dims_matrix(const char *path, uint64_t bytes, size_t elem, struct opt_count rows, struct opt_count cols,
                uint64_t *ret_rows, uint64_t *ret_cols, char *why);

/* A raw operand to be repeated to rows × cols: the whole, one row, one column or one element. */
int dims_repeated(const char *path, uint64_t bytes, size_t elem, uint64_t rows, uint64_t cols,
                  uint64_t *ret_rows, uint64_t *ret_cols, char *why);

#endif
