/*
 * functions.h: the functions of one type and family of names; included once for each. It undefines
 * what family.h defines for a type. No guard.
 *
 * Fortran passes the lengths of strings after the other arguments. They are passed on as they came; a caller in
 * C may have left anything there.
 */

/* Computes a part of a product by this family and type. */
static void FORTRAN(part_gemm)(const struct product *p);

EXPORT(FORTRAN(gemm),
       (const char *trans_a, const char *trans_b, const INT *m, const INT *n, const INT *k,
        const ELEMENT *alpha, const ELEMENT *a, const INT *lda, const ELEMENT *b, const INT *ldb,
        const ELEMENT *beta, ELEMENT *c, const INT *ldc, size_t length_a, size_t length_b),
       (trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, length_a, length_b), TIMES(*m, *n, *k),
       GEMM(DTYPE, COL_MAJOR, entry_trans(*trans_a), entry_trans(*trans_b), *m, *n, *k, *alpha, MATRIX(a, *lda),
            MATRIX(b, *ldb), *beta, MATRIX(c, *ldc)))

EXPORT(CBLAS(gemm),
       (int order, int trans_a, int trans_b, word m, word n, word k, FACTOR alpha, const ELEMENT *a, word lda,
        const ELEMENT *b, word ldb, FACTOR beta, ELEMENT *c, word ldc),
       (order, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc), TIMES(m, n, k),
       GEMM(DTYPE, order, trans_a, trans_b, (INT)m, (INT)n, (INT)k, VALUE(alpha), MATRIX(a, lda),
            MATRIX(b, ldb), VALUE(beta), MATRIX(c, ldc)))

EXPORT(FORTRAN(syrk),
       (const char *uplo, const char *trans, const INT *n, const INT *k, const ELEMENT *alpha, const ELEMENT *a,
        const INT *lda, const ELEMENT *beta, ELEMENT *c, const INT *ldc, size_t length_uplo,
        size_t length_trans),
       (uplo, trans, n, k, alpha, a, lda, beta, c, ldc, length_uplo, length_trans), TIMES(*n, *n, *k) / 2,
       PRODUCT(entry_syrk(DTYPE, COL_MAJOR, entry_uplo(*uplo), entry_trans(*trans), *n, *k, *alpha,
                          MATRIX(a, *lda), *beta, MATRIX(c, *ldc))))

EXPORT(CBLAS(syrk),
       (int order, int uplo, int trans, word n, word k, FACTOR alpha, const ELEMENT *a, word lda, FACTOR beta,
        ELEMENT *c, word ldc),
       (order, uplo, trans, n, k, alpha, a, lda, beta, c, ldc), TIMES(n, n, k) / 2,
       PRODUCT(entry_syrk(DTYPE, order, uplo, trans, (INT)n, (INT)k, VALUE(alpha), MATRIX(a, lda), VALUE(beta),
                          MATRIX(c, ldc))))

EXPORT(FORTRAN(symm),
       (const char *side, const char *uplo, const INT *m, const INT *n, const ELEMENT *alpha, const ELEMENT *a,
        const INT *lda, const ELEMENT *b, const INT *ldb, const ELEMENT *beta, ELEMENT *c, const INT *ldc,
        size_t length_side, size_t length_uplo),
       (side, uplo, m, n, alpha, a, lda, b, ldb, beta, c, ldc, length_side, length_uplo),
       TIMES(*m, *n, entry_side(*side) == LEFT ? *m : *n),
       PRODUCT(entry_symm(DTYPE, COL_MAJOR, entry_side(*side), entry_uplo(*uplo), *m, *n, *alpha,
                          MATRIX(a, *lda), MATRIX(b, *ldb), *beta, MATRIX(c, *ldc))))

EXPORT(CBLAS(symm),
       (int order, int side, int uplo, word m, word n, FACTOR alpha, const ELEMENT *a, word lda,
        const ELEMENT *b, word ldb, FACTOR beta, ELEMENT *c, word ldc),
       (order, side, uplo, m, n, alpha, a, lda, b, ldb, beta, c, ldc), TIMES(m, n, side == LEFT ? m : n),
       PRODUCT(entry_symm(DTYPE, order, side, uplo, (INT)m, (INT)n, VALUE(alpha), MATRIX(a, lda),
                          MATRIX(b, ldb), VALUE(beta), MATRIX(c, ldc))))

/*
 * Groups of products, each of one shape. A group is one job, or one call of the next BLAS's function of this
 * name. If that does not exist, as in Netlib's and older OpenBLAS, a group is calls of gemm.
 */
typedef void CBLAS(gemm_batch_function)(int order, const int *trans_a, const int *trans_b, const INT *m,
                                        const INT *n, const INT *k, const ELEMENT *alpha, const ELEMENT **a,
                                        const INT *lda, const ELEMENT **b, const INT *ldb, const ELEMENT *beta,
                                        ELEMENT **c, const INT *ldc, word groups, const INT *sizes);
CBLAS(gemm_batch_function) CBLAS(gemm_batch);
ROUTINE_OF(CBLAS(gemm_batch), CBLAS(gemm));

static void CBLAS(gemm_group)(int order, int trans_a, int trans_b, int64_t m, int64_t n, int64_t k,
                              ELEMENT alpha, const ELEMENT **a, int64_t lda, const ELEMENT **b, int64_t ldb,
                              ELEMENT beta, ELEMENT **c, int64_t ldc, int64_t size)
{
	struct routine *routine = ITS_ROUTINE(CBLAS(gemm_batch));
	struct call call;
	routine_begin(&call, routine, false);
	struct product p = entry_gemm(DTYPE, order, trans_a, trans_b, m, n, k, alpha, MATRICES(a, lda),
	                              MATRICES(b, ldb), beta, MATRICES(c, ldc));
	p.batch = size;
	CBLAS(gemm_batch_function) *next = (CBLAS(gemm_batch_function) *)routine_next(routine);
	bool computed = size > 0 && compute_product(&p, NULL, &call);
	if (!computed && next)
		next(order, &trans_a, &trans_b, ONE(m), ONE(n), ONE(k), &alpha, a, ONE(lda), b, ONE(ldb), &beta,
		     c, ONE(ldc), 1, ONE(size));
	for (int64_t i = 0; i < size && !computed && !next; i++)
		PART_OF(CBLAS(gemm))
	(true, order, trans_a, trans_b, m, n, k, PASSED(alpha), a[i], lda, b[i], ldb, PASSED(beta), c[i], ldc);
	routine_end(&call);
}

/* Computes the groups one by one. */
static void CBLAS(gemm_groups)(int order, const int *trans_a, const int *trans_b, const INT *m, const INT *n,
                               const INT *k, const ELEMENT *alpha, const ELEMENT **a, const INT *lda,
                               const ELEMENT **b, const INT *ldb, const ELEMENT *beta, ELEMENT **c,
                               const INT *ldc, int64_t groups, const INT *sizes, bool wide)
{
	for (int64_t g = 0, first = 0; g < groups; first += INTEGER(sizes, g++))
		CBLAS(gemm_group)
	(order, trans_a[g], trans_b[g], INTEGER(m, g), INTEGER(n, g), INTEGER(k, g), alpha[g], a + first,
	 INTEGER(lda, g), b + first, INTEGER(ldb, g), beta[g], c + first, INTEGER(ldc, g), INTEGER(sizes, g));
}

void CBLAS(gemm_batch)(int order, const int *trans_a, const int *trans_b, const INT *m, const INT *n,
                       const INT *k, const ELEMENT *alpha, const ELEMENT **a, const INT *lda, const ELEMENT **b,
                       const INT *ldb, const ELEMENT *beta, ELEMENT **c, const INT *ldc, word groups,
                       const INT *sizes)
{
	struct routine *routine = ITS_ROUTINE(CBLAS(gemm_batch));
	struct call call;
	routine_begin(&call, routine, false);
	CBLAS(gemm_batch_function) *next = (CBLAS(gemm_batch_function) *)routine_next(routine);
	bool wide = is_wide(&call);
	if (next && (wide || routine_hands_on(routine, DBL_MAX))) {
		next(order, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, groups, sizes);
		routine_end(&call);
		return;
	}
	CBLAS(gemm_groups)
	(order, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, wide ? groups : (INT)groups,
	 sizes, wide);
}

/*
 * The functions of this family and type for the parts of a triangular product. FORTRAN(calls) names functions
 * that use it.
 */
static const struct triangular_calls FORTRAN(calls);

EXPORT(FORTRAN(trsm),
       (const char *side, const char *uplo, const char *trans, const char *diag, const INT *m, const INT *n,
        const ELEMENT *alpha, const ELEMENT *a, const INT *lda, ELEMENT *b, const INT *ldb, size_t length_side,
        size_t length_uplo, size_t length_trans, size_t length_diag),
       (side, uplo, trans, diag, m, n, alpha, a, lda, b, ldb, length_side, length_uplo, length_trans,
        length_diag),
       HALVES(*m, *n, entry_side(*side) == LEFT ? *m : *n),
       TRIANGULAR(DTYPE, true, COL_MAJOR, entry_side(*side), entry_uplo(*uplo), entry_trans(*trans),
                  entry_diag(*diag), *m, *n, *alpha, MATRIX(a, *lda), MATRIX(b, *ldb)))

EXPORT(CBLAS(trsm),
       (int order, int side, int uplo, int trans, int diag, word m, word n, FACTOR alpha, const ELEMENT *a,
        word lda, ELEMENT *b, word ldb),
       (order, side, uplo, trans, diag, m, n, alpha, a, lda, b, ldb), HALVES(m, n, side == LEFT ? m : n),
       TRIANGULAR(DTYPE, true, order, side, uplo, trans, diag, (INT)m, (INT)n, VALUE(alpha), MATRIX(a, lda),
                  MATRIX(b, ldb)))

EXPORT(FORTRAN(trmm),
       (const char *side, const char *uplo, const char *trans, const char *diag, const INT *m, const INT *n,
        const ELEMENT *alpha, const ELEMENT *a, const INT *lda, ELEMENT *b, const INT *ldb, size_t length_side,
        size_t length_uplo, size_t length_trans, size_t length_diag),
       (side, uplo, trans, diag, m, n, alpha, a, lda, b, ldb, length_side, length_uplo, length_trans,
        length_diag),
       HALVES(*m, *n, entry_side(*side) == LEFT ? *m : *n),
       TRIANGULAR(DTYPE, false, COL_MAJOR, entry_side(*side), entry_uplo(*uplo), entry_trans(*trans),
                  entry_diag(*diag), *m, *n, *alpha, MATRIX(a, *lda), MATRIX(b, *ldb)))

EXPORT(CBLAS(trmm),
       (int order, int side, int uplo, int trans, int diag, word m, word n, FACTOR alpha, const ELEMENT *a,
        word lda, ELEMENT *b, word ldb),
       (order, side, uplo, trans, diag, m, n, alpha, a, lda, b, ldb), HALVES(m, n, side == LEFT ? m : n),
       TRIANGULAR(DTYPE, false, order, side, uplo, trans, diag, (INT)m, (INT)n, VALUE(alpha), MATRIX(a, lda),
                  MATRIX(b, ldb)))

static void FORTRAN(part_gemm)(const struct product *p)
{
	const INT m = (INT)p->m, n = (INT)p->n, k = (INT)p->k;
	const INT lda = (INT)p->a.ld, ldb = (INT)p->b.ld, ldc = (INT)p->c.ld;
	const ELEMENT alpha = (ELEMENT)p->alpha, beta = (ELEMENT)p->beta;
	PART_OF(FORTRAN(gemm))
	(true, entry_letter(p->trans_a, p->conj_a), entry_letter(p->trans_b, p->conj_b), &m, &n, &k, &alpha,
	 p->a.data, &lda, p->b.data, &ldb, &beta, (ELEMENT *)p->c.data, &ldc, 1, 1);
}

static void FORTRAN(part_triangular)(const struct triangular *t)
{
	const INT m = (INT)t->m, n = (INT)t->n, lda = (INT)t->a.ld, ldb = (INT)t->b.ld;
	const ELEMENT alpha = (ELEMENT)t->alpha;
	(t->solve ? PART_OF(FORTRAN(trsm)) : PART_OF(FORTRAN(trmm)))(
	    true, t->left ? "L" : "R", t->upper ? "U" : "L", entry_letter(t->trans, t->conj),
	    t->unit ? "U" : "N", &m, &n, &alpha, t->a.data, &lda, (ELEMENT *)t->b.data, &ldb, 1, 1, 1, 1);
}

static const struct triangular_calls FORTRAN(calls) = {FORTRAN(part_gemm), FORTRAN(part_triangular)};

#ifdef REAL
#include "hermitian.h"
#endif
#include "lapack.h"

#undef LETTER
#undef ELEMENT
#undef REAL
#undef FACTOR
#undef VALUE
#undef PASSED
#undef DTYPE
