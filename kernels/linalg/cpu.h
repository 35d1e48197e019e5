/*
 * cpu.h: what the CPU's kernels on matrices share: OpenBLAS's functions for every type, and triangles that are
 * copied and filled.
 *
 * OpenBLAS takes matrices whose rows or columns are runs of elements. Blocks of such a matrix lie as it does.
 */
#ifndef KOPS_LINALG_CPU_H
#define KOPS_LINALG_CPU_H

#include "linalg/linalg.h"

/* Sets both strides of m as OpenBLAS has them, also those of axes of one index. Returns false if it does not
 * take m; then m becomes a dense matrix at `room`. */
bool linalg_lay_out(struct linalg_matrix *m, void *room);

/* Returns the bytes of such a dense matrix; UINT64_MAX on overflow, and 0 if m needs none. */
uint64_t linalg_room(const struct linalg_matrix *m);

/* y = x for triangles with their diagonals, or for all elements. Threads. */
void linalg_copy_lower(const struct linalg_matrix *y, const struct linalg_matrix *x);
void linalg_copy_all(const struct linalg_matrix *y, const struct linalg_matrix *x);

/* Zeros above the diagonal; NaN below and on it. Threads. */
void linalg_clear_upper(const struct linalg_matrix *m);
void linalg_spoil_lower(const struct linalg_matrix *m);

/* Which ns that takes: an element of each line of memory that is touched. */
double linalg_copy_ns(const struct view *v);

/* The transpose of m, in its memory; and m with its rows numbered from the other end. */
struct linalg_matrix linalg_transposed(const struct linalg_matrix *m);
struct linalg_matrix linalg_reversed_rows(const struct linalg_matrix *m);

/* ---- OpenBLAS ---- */

/* A triangle, or its conjugate. unit: the diagonal is 1 and not read. */
struct blas_triangle {
	struct linalg_matrix m;
	bool upper, conjugated, unit;
};

/* b = T⁻¹·b */
void blas_solve(const struct blas_triangle *t, const struct linalg_matrix *b);

/* c -= a·b, a conjugated or not. */
void blas_subtract_product(const struct linalg_matrix *a, bool conj_a, const struct linalg_matrix *b,
                           const struct linalg_matrix *c);

/* The lower triangle of c -= a·aᴴ. */
void blas_subtract_square(const struct linalg_matrix *a, const struct linalg_matrix *c);

/* Factors the lower triangle of m. Returns potrf's info. */
int blas_cholesky(const struct linalg_matrix *m);

#endif
