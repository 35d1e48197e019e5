/*
 * entry.h: converts the arguments of exported functions. A row-major product becomes the column-major one of
 * the transposed matrices.
 */
#ifndef KOPS_LIBBLAS_ENTRY_H
#define KOPS_LIBBLAS_ENTRY_H

#include <stdint.h>

#include "product.h"
#include "triangular.h"

/* Values of cblas.h. */
enum { ROW_MAJOR = 101, COL_MAJOR = 102 };
enum { NO_TRANS = 111, TRANS = 112, CONJ_TRANS = 113 };
enum { CBLAS_UPPER = 121, CBLAS_LOWER = 122 };
enum { NON_UNIT = 131, UNIT = 132 };
enum { LEFT = 141, RIGHT = 142 };

/* Convert a letter of a Fortran call to a value above; 0 for unknown letters. */
int entry_trans(char letter);
int entry_uplo(char letter);
int entry_diag(char letter);
int entry_side(char letter);

/* The letter of a Fortran call for an operand. */
const char *entry_letter(bool trans, bool conj);

struct entry_matrix {
	const void *data;
	int64_t ld;
	const void *const *each; /* as in struct operand */
};

struct product entry_gemm(kops_dtype dtype, int order, int trans_a, int trans_b, int64_t m, int64_t n,
                          int64_t k, double complex alpha, struct entry_matrix a, struct entry_matrix b,
                          double complex beta, struct entry_matrix c);
struct product entry_syrk(kops_dtype dtype, int order, int uplo, int trans, int64_t n, int64_t k,
                          double complex alpha, struct entry_matrix a, double complex beta,
                          struct entry_matrix c);
struct product entry_symm(kops_dtype dtype, int order, int side, int uplo, int64_t m, int64_t n,
                          double complex alpha, struct entry_matrix a, struct entry_matrix b,
                          double complex beta, struct entry_matrix c);

/* The same of Hermitian matrices: herk's conjugate transpose stands for syrk's transpose. */
struct product entry_herk(kops_dtype dtype, int order, int uplo, int trans, int64_t n, int64_t k, double alpha,
                          struct entry_matrix a, double beta, struct entry_matrix c);
struct product entry_hemm(kops_dtype dtype, int order, int side, int uplo, int64_t m, int64_t n,
                          double complex alpha, struct entry_matrix a, struct entry_matrix b,
                          double complex beta, struct entry_matrix c);

struct triangular entry_triangular(kops_dtype dtype, bool solve, int order, int side, int uplo, int trans,
                                   int diag, int64_t m, int64_t n, double complex alpha, struct entry_matrix a,
                                   struct entry_matrix b);

#endif
