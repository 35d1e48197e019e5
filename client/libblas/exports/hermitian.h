/* hermitian.h: as functions.h, those that only complex types have. REAL: the type of their parts. No guard. */

EXPORT(FORTRAN(herk),
       (const char *uplo, const char *trans, const INT *n, const INT *k, const REAL *alpha, const ELEMENT *a,
        const INT *lda, const REAL *beta, ELEMENT *c, const INT *ldc, size_t length_uplo, size_t length_trans),
       (uplo, trans, n, k, alpha, a, lda, beta, c, ldc, length_uplo, length_trans), TIMES(*n, *n, *k) / 2,
       PRODUCT(entry_herk(DTYPE, COL_MAJOR, entry_uplo(*uplo), entry_trans(*trans), *n, *k, *alpha,
                          MATRIX(a, *lda), *beta, MATRIX(c, *ldc))))

EXPORT(CBLAS(herk),
       (int order, int uplo, int trans, word n, word k, REAL alpha, const ELEMENT *a, word lda, REAL beta,
        ELEMENT *c, word ldc),
       (order, uplo, trans, n, k, alpha, a, lda, beta, c, ldc), TIMES(n, n, k) / 2,
       PRODUCT(entry_herk(DTYPE, order, uplo, trans, (INT)n, (INT)k, alpha, MATRIX(a, lda), beta,
                          MATRIX(c, ldc))))

EXPORT(FORTRAN(hemm),
       (const char *side, const char *uplo, const INT *m, const INT *n, const ELEMENT *alpha, const ELEMENT *a,
        const INT *lda, const ELEMENT *b, const INT *ldb, const ELEMENT *beta, ELEMENT *c, const INT *ldc,
        size_t length_side, size_t length_uplo),
       (side, uplo, m, n, alpha, a, lda, b, ldb, beta, c, ldc, length_side, length_uplo),
       TIMES(*m, *n, entry_side(*side) == LEFT ? *m : *n),
       PRODUCT(entry_hemm(DTYPE, COL_MAJOR, entry_side(*side), entry_uplo(*uplo), *m, *n, *alpha,
                          MATRIX(a, *lda), MATRIX(b, *ldb), *beta, MATRIX(c, *ldc))))

EXPORT(CBLAS(hemm),
       (int order, int side, int uplo, word m, word n, FACTOR alpha, const ELEMENT *a, word lda,
        const ELEMENT *b, word ldb, FACTOR beta, ELEMENT *c, word ldc),
       (order, side, uplo, m, n, alpha, a, lda, b, ldb, beta, c, ldc), TIMES(m, n, side == LEFT ? m : n),
       PRODUCT(entry_hemm(DTYPE, order, side, uplo, (INT)m, (INT)n, VALUE(alpha), MATRIX(a, lda),
                          MATRIX(b, ldb), VALUE(beta), MATRIX(c, ldc))))
