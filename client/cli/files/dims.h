/* dims.h: shapes that raw files do not tell, from their sizes and what else is known. */
#ifndef KOPS_CLI_FILES_DIMS_H
#define KOPS_CLI_FILES_DIMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "files/source.h"

enum dims_axis { DIMS_M, DIMS_N, DIMS_K, DIMS_AXES };

/*
 * Sets the shapes of the raw ones among A, B and C, which may be NULL, of op(A) M × K, op(B) K × N, C M × N;
 * their dtypes are known. given: -m, -n, -k. One of them fixes the others for two raw files; two raw files of
 * one square size need none. KOPS_E_INVALID with a sentence in why (CLI_WHY_BYTES): the operand, the bytes that
 * it has, and those that it needs.
 */
int dims_product(struct source *const sources[3], const bool transposed[3],
                 const struct opt_count given[DIMS_AXES], char *why);

/*
 * Sets the shape of one raw file: rows or columns fix the other, and a square needs neither. Of a .npy, they
 * have to agree. Errors as above.
 */
int dims_matrix(struct source *source, struct opt_count rows, struct opt_count cols, char *why);

/* The same of a raw operand to be repeated to rows × cols: the whole, one row, one column or one element. */
int dims_repeated(struct source *source, uint64_t rows, uint64_t cols, char *why);

#endif
