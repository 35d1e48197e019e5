/*
 * fake_blas.c: a BLAS that computes nothing and records the integers that it gets. INTEGER is the width that it
 * expects; the file's name says otherwise.
 */
#include <fenv.h>
#include <stddef.h>
#include <stdint.h>

/* m, n and lda of the last product. */
int64_t seen[3];

int64_t idamax_(const INTEGER *n, const double *x, const INTEGER *step);
double cblas_dasum(INTEGER n, const double *x, INTEGER step);
void dgemm_(const char *trans_a, const char *trans_b, const INTEGER *m, const INTEGER *n, const INTEGER *k,
            const double *alpha, const double *a, const INTEGER *lda, const double *b, const INTEGER *ldb,
            const double *beta, double *c, const INTEGER *ldc);
void dtrsm_(const char *side, const char *uplo, const char *trans, const char *diag, const INTEGER *m,
            const INTEGER *n, const double *alpha, const double *a, const INTEGER *lda, double *b,
            const INTEGER *ldb);
void cblas_dgemm(int order, int trans_a, int trans_b, INTEGER m, INTEGER n, INTEGER k, double alpha,
                 const double *a, INTEGER lda, const double *b, INTEGER ldb, double beta, double *c,
                 INTEGER ldc);

static void see(INTEGER m, INTEGER n, INTEGER lda)
{
	seen[0] = m;
	seen[1] = n;
	seen[2] = lda;
}

/* Raises a flag that callers of products must not see. */
int64_t idamax_(const INTEGER *n, const double *x, const INTEGER *step)
{
	feraiseexcept(FE_INVALID);
	return *n > 0 && *step > 0 && x;
}

double cblas_dasum(INTEGER n, const double *x, INTEGER step)
{
	return n > 0 && step > 0 ? *x : 0;
}

void dgemm_(const char *trans_a, const char *trans_b, const INTEGER *m, const INTEGER *n, const INTEGER *k,
            const double *alpha, const double *a, const INTEGER *lda, const double *b, const INTEGER *ldb,
            const double *beta, double *c, const INTEGER *ldc)
{
	(void)trans_a, (void)trans_b, (void)k, (void)alpha, (void)a, (void)b, (void)ldb, (void)beta, (void)c;
	(void)ldc;
	see(*m, *n, *lda);
}

void dtrsm_(const char *side, const char *uplo, const char *trans, const char *diag, const INTEGER *m,
            const INTEGER *n, const double *alpha, const double *a, const INTEGER *lda, double *b,
            const INTEGER *ldb)
{
	(void)side, (void)uplo, (void)trans, (void)diag, (void)alpha, (void)a, (void)b, (void)ldb;
	see(*m, *n, *lda);
}

void cblas_dgemm(int order, int trans_a, int trans_b, INTEGER m, INTEGER n, INTEGER k, double alpha,
                 const double *a, INTEGER lda, const double *b, INTEGER ldb, double beta, double *c,
                 INTEGER ldc)
{
	(void)order, (void)trans_a, (void)trans_b, (void)k, (void)alpha, (void)a, (void)b, (void)ldb,
	    (void)beta;
	(void)c, (void)ldc;
	see(m, n, lda);
}
