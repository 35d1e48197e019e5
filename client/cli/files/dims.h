/* dims.h: finds the shapes of raw files from their sizes and what else is known. */
#ifndef KOPS_CLI_FILES_DIMS_H
#define KOPS_CLI_FILES_DIMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "files/source.h"

enum dims_axis { DIMS_M, DIMS_N, DIMS_K, DIMS_AXES };

/*
 * Sets the shapes of the raw ones among A, B and C, which may be NULL, of op(A) M × K, op(B) K × N, C M × N.
 * Their dtypes are known. given: -m, -n, -k. Two raw files need one of these, or none if both have the same
 * square size. Returns KOPS_E_INVALID with a sentence in why (CLI_WHY_BYTES): the operand, its bytes, and the
 * bytes needed.
 */
int dims_product(struct source *const sources[3], const bool transposed[3],
                 const struct opt_count given[DIMS_AXES], char *why);

/*
 * Sets the shape of one raw file: rows or columns fix the other, and a square needs neither. For a .npy, checks
 * that they agree. Errors as above.
 */
int dims_matrix(struct source *source, struct opt_count rows, struct opt_count cols, char *why);

/* Sets the shape of a raw vector: one axis, as long as its size says. */
int dims_vector(struct source *source, char *why);

/*
 * Sets the shape of a raw operand that is repeated to rows × cols: the whole, one row, one column or one
 * element.
 */
int dims_repeated(struct source *source, uint64_t rows, uint64_t cols, char *why);

#endif
