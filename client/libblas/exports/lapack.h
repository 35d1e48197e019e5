/*
 * lapack.h: as functions.h, some of LAPACK's under Fortran's names, which LAPACKE's functions call. No guard.
 *
 * Who asks for the size of a workspace (lwork = -1) gets the next library's answer, and errors come from there.
 */

/* ---- Cholesky ---- */

EXPORT(FORTRAN(potrf),
       (const char *uplo, const INT *n, ELEMENT *a, const INT *lda, INT *info, size_t length_uplo),
       (uplo, n, a, lda, info, length_uplo), TIMES(*n, *n, *n) / 6,
       SYSTEM(.method = BY_CHOLESKY, .factors = true, OF_TRIANGLE(*uplo), SQUARE(*n, a, *lda)))

EXPORT(FORTRAN(potrs),
       (const char *uplo, const INT *n, const INT *columns, const ELEMENT *a, const INT *lda, ELEMENT *b,
        const INT *ldb, INT *info, size_t length_uplo),
       (uplo, n, columns, a, lda, b, ldb, info, length_uplo), TIMES(*n, *n, *columns),
       SYSTEM(.method = BY_CHOLESKY, OF_TRIANGLE(*uplo), SQUARE(*n, a, *lda), SIDES(*columns, b, *ldb)))

EXPORT(FORTRAN(posv),
       (const char *uplo, const INT *n, const INT *columns, ELEMENT *a, const INT *lda, ELEMENT *b,
        const INT *ldb, INT *info, size_t length_uplo),
       (uplo, n, columns, a, lda, b, ldb, info, length_uplo), TIMES(*n, *n, *n) / 6 + TIMES(*n, *n, *columns),
       SYSTEM(.method = BY_CHOLESKY, .factors = true, OF_TRIANGLE(*uplo), SQUARE(*n, a, *lda),
              SIDES(*columns, b, *ldb)))

EXPORT(FORTRAN(potri),
       (const char *uplo, const INT *n, ELEMENT *a, const INT *lda, INT *info, size_t length_uplo),
       (uplo, n, a, lda, info, length_uplo), TIMES(*n, *n, *n) / 3,
       SYSTEM(.method = BY_CHOLESKY, .inverts = true, OF_TRIANGLE(*uplo), SQUARE(*n, a, *lda)))

/* ---- LU ---- */

EXPORT(FORTRAN(getrf), (const INT *m, const INT *n, ELEMENT *a, const INT *lda, INT *pivots, INT *info),
       (m, n, a, lda, pivots, info), TIMES(*m, *n, *m < *n ? *m : *n) / 3,
       SYSTEM(.method = BY_LU, .factors = true, .m = *m, .n = *n, .a = a, .lda = *lda, PIVOTS(pivots)))

EXPORT(FORTRAN(getrs),
       (const char *trans, const INT *n, const INT *columns, const ELEMENT *a, const INT *lda,
        const INT *pivots, ELEMENT *b, const INT *ldb, INT *info, size_t length_trans),
       (trans, n, columns, a, lda, pivots, b, ldb, info, length_trans), TIMES(*n, *n, *columns),
       SYSTEM(.method = BY_LU, .invalid = !entry_trans(*trans), .trans = entry_trans(*trans) != NO_TRANS,
              .conj = entry_trans(*trans) == CONJ_TRANS, SQUARE(*n, a, *lda), PIVOTS(pivots),
              SIDES(*columns, b, *ldb)))

EXPORT(FORTRAN(gesv),
       (const INT *n, const INT *columns, ELEMENT *a, const INT *lda, INT *pivots, ELEMENT *b, const INT *ldb,
        INT *info),
       (n, columns, a, lda, pivots, b, ldb, info), TIMES(*n, *n, *n) / 3 + TIMES(*n, *n, *columns),
       SYSTEM(.method = BY_LU, .factors = true, SQUARE(*n, a, *lda), PIVOTS(pivots), SIDES(*columns, b, *ldb)))

EXPORT(FORTRAN(getri),
       (const INT *n, ELEMENT *a, const INT *lda, const INT *pivots, ELEMENT *workspace, const INT *lwork,
        INT *info),
       (n, a, lda, pivots, workspace, lwork, info), TIMES(*n, *n, *n) * 2 / 3,
       SYSTEM(.method = BY_LU, .inverts = true, .invalid = *lwork < *n, SQUARE(*n, a, *lda), PIVOTS(pivots)))

/* ---- Triangles ---- */

EXPORT(FORTRAN(trtrs),
       (const char *uplo, const char *trans, const char *diag, const INT *n, const INT *columns,
        const ELEMENT *a, const INT *lda, ELEMENT *b, const INT *ldb, INT *info, size_t length_uplo,
        size_t length_trans, size_t length_diag),
       (uplo, trans, diag, n, columns, a, lda, b, ldb, info, length_uplo, length_trans, length_diag),
       TIMES(*n, *n, *columns) / 2,
       SYSTEM(.method = BY_TRIANGLE, .upper = entry_uplo(*uplo) == CBLAS_UPPER,
              .invalid = !entry_uplo(*uplo) || !entry_trans(*trans) || !entry_diag(*diag),
              .trans = entry_trans(*trans) != NO_TRANS, .conj = entry_trans(*trans) == CONJ_TRANS,
              .unit = entry_diag(*diag) == UNIT, SQUARE(*n, a, *lda), SIDES(*columns, b, *ldb)))

/* A diagonal of ones is not stored, so it must not be written. */
EXPORT(FORTRAN(trtri),
       (const char *uplo, const char *diag, const INT *n, ELEMENT *a, const INT *lda, INT *info,
        size_t length_uplo, size_t length_diag),
       (uplo, diag, n, a, lda, info, length_uplo, length_diag), TIMES(*n, *n, *n) / 6,
       SYSTEM(.method = BY_TRIANGLE, .inverts = true, .upper = entry_uplo(*uplo) == CBLAS_UPPER,
              .invalid = !entry_uplo(*uplo) || entry_diag(*diag) != NON_UNIT, SQUARE(*n, a, *lda)))
