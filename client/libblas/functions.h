/*
 * functions.h: the functions of one type and family of names; included for each. No guard.
 *
 * Fortran passes the lengths of its strings behind the other arguments; they go on as they came, or as whatever
 * a caller in C left there.
 */

EXPORT(FORTRAN(gemm),
       (const char *trans_a, const char *trans_b, const INT *m, const INT *n, const INT *k, const REAL *alpha,
        const REAL *a, const INT *lda, const REAL *b, const INT *ldb, const REAL *beta, REAL *c, const INT *ldc,
        size_t length_a, size_t length_b),
       (trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, length_a, length_b), TIMES(*m, *n, *k),
       entry_gemm(DTYPE, COL_MAJOR, entry_trans(*trans_a), entry_trans(*trans_b), *m, *n, *k, *alpha,
                  MATRIX(a, *lda), MATRIX(b, *ldb), *beta, MATRIX(c, *ldc)))

EXPORT(CBLAS(gemm),
       (int order, int trans_a, int trans_b, INT m, INT n, INT k, REAL alpha, const REAL *a, INT lda,
        const REAL *b, INT ldb, REAL beta, REAL *c, INT ldc),
       (order, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc), TIMES(m, n, k),
       entry_gemm(DTYPE, order, trans_a, trans_b, m, n, k, alpha, MATRIX(a, lda), MATRIX(b, ldb), beta,
                  MATRIX(c, ldc)))

EXPORT(FORTRAN(syrk),
       (const char *uplo, const char *trans, const INT *n, const INT *k, const REAL *alpha, const REAL *a,
        const INT *lda, const REAL *beta, REAL *c, const INT *ldc, size_t length_uplo, size_t length_trans),
       (uplo, trans, n, k, alpha, a, lda, beta, c, ldc, length_uplo, length_trans), TIMES(*n, *n, *k) / 2,
       entry_syrk(DTYPE, COL_MAJOR, entry_uplo(*uplo), entry_trans(*trans), *n, *k, *alpha, MATRIX(a, *lda),
                  *beta, MATRIX(c, *ldc)))

EXPORT(CBLAS(syrk),
       (int order, int uplo, int trans, INT n, INT k, REAL alpha, const REAL *a, INT lda, REAL beta, REAL *c,
        INT ldc),
       (order, uplo, trans, n, k, alpha, a, lda, beta, c, ldc), TIMES(n, n, k) / 2,
       entry_syrk(DTYPE, order, uplo, trans, n, k, alpha, MATRIX(a, lda), beta, MATRIX(c, ldc)))

EXPORT(FORTRAN(symm),
       (const char *side, const char *uplo, const INT *m, const INT *n, const REAL *alpha, const REAL *a,
        const INT *lda, const REAL *b, const INT *ldb, const REAL *beta, REAL *c, const INT *ldc,
        size_t length_side, size_t length_uplo),
       (side, uplo, m, n, alpha, a, lda, b, ldb, beta, c, ldc, length_side, length_uplo),
       TIMES(*m, *n, entry_side(*side) == LEFT ? *m : *n),
       entry_symm(DTYPE, COL_MAJOR, entry_side(*side), entry_uplo(*uplo), *m, *n, *alpha, MATRIX(a, *lda),
                  MATRIX(b, *ldb), *beta, MATRIX(c, *ldc)))

EXPORT(CBLAS(symm),
       (int order, int side, int uplo, INT m, INT n, REAL alpha, const REAL *a, INT lda, const REAL *b, INT ldb,
        REAL beta, REAL *c, INT ldc),
       (order, side, uplo, m, n, alpha, a, lda, b, ldb, beta, c, ldc), TIMES(m, n, side == LEFT ? m : n),
       entry_symm(DTYPE, order, side, uplo, m, n, alpha, MATRIX(a, lda), MATRIX(b, ldb), beta, MATRIX(c, ldc)))
