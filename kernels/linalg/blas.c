/* blas.c: OpenBLAS's BLAS and LAPACK for matrices of every type. See cpu.h. */
#include <cblas.h>

#include "linalg/cpu.h"

/* Of LAPACK by columns, in Fortran's form: characters have their lengths behind all other arguments. */
void spotrf_(const char *uplo, const int *n, float *a, const int *lda, int *info, size_t uplo_length);
void dpotrf_(const char *uplo, const int *n, double *a, const int *lda, int *info, size_t uplo_length);
void cpotrf_(const char *uplo, const int *n, float *a, const int *lda, int *info, size_t uplo_length);
void zpotrf_(const char *uplo, const int *n, double *a, const int *lda, int *info, size_t uplo_length);

static bool is_by_columns(const struct linalg_matrix *m)
{
	return m->row == 1;
}

static CBLAS_ORDER order_of(const struct linalg_matrix *m)
{
	return is_by_columns(m) ? CblasColMajor : CblasRowMajor;
}

static int lines_apart(const struct linalg_matrix *m)
{
	return (int)(is_by_columns(m) ? m->col : m->row);
}

/* How cblas reads m in this order. */
static CBLAS_TRANSPOSE flag_of(const struct linalg_matrix *m, CBLAS_ORDER order, bool conjugated)
{
	bool as_it_is = order_of(m) == order;

	conjugated = conjugated && dtype_components(m->dtype) > 1;
	if (as_it_is)
		return conjugated ? CblasConjNoTrans : CblasNoTrans;
	return conjugated ? CblasConjTrans : CblasTrans;
}

void blas_solve(const struct blas_triangle *t, const struct linalg_matrix *b)
{
	CBLAS_ORDER order = order_of(b);
	CBLAS_TRANSPOSE flag = flag_of(&t->m, order, t->conjugated);
	CBLAS_UPLO uplo = t->upper == (order_of(&t->m) == order) ? CblasUpper : CblasLower;
	CBLAS_DIAG diag = t->unit ? CblasUnit : CblasNonUnit;
	int m = (int)b->rows, n = (int)b->cols, ldt = lines_apart(&t->m), ldb = lines_apart(b);
	const double one[] = {1, 0};
	const float one32[] = {1, 0};

	if (m == 0 || n == 0)
		return;
	if (b->dtype == KOPS_F32)
		cblas_strsm(order, CblasLeft, uplo, flag, diag, m, n, 1, (float *)t->m.data, ldt,
		            (float *)b->data, ldb);
	else if (b->dtype == KOPS_F64)
		cblas_dtrsm(order, CblasLeft, uplo, flag, diag, m, n, 1, (double *)t->m.data, ldt,
		            (double *)b->data, ldb);
	else if (b->dtype == KOPS_C64)
		cblas_ctrsm(order, CblasLeft, uplo, flag, diag, m, n, one32, t->m.data, ldt, b->data, ldb);
	else
		cblas_ztrsm(order, CblasLeft, uplo, flag, diag, m, n, one, t->m.data, ldt, b->data, ldb);
}

void blas_subtract_product(const struct linalg_matrix *a, bool conj_a, const struct linalg_matrix *b,
                           const struct linalg_matrix *c)
{
	CBLAS_ORDER order = order_of(c);
	CBLAS_TRANSPOSE of_a = flag_of(a, order, conj_a), of_b = flag_of(b, order, false);
	int m = (int)c->rows, n = (int)c->cols, k = (int)a->cols, lda = lines_apart(a), ldb = lines_apart(b),
	    ldc = lines_apart(c);
	const double one[] = {1, 0}, minus[] = {-1, 0};
	const float one32[] = {1, 0}, minus32[] = {-1, 0};

	if (m == 0 || n == 0 || k == 0)
		return;
	if (c->dtype == KOPS_F32)
		cblas_sgemm(order, of_a, of_b, m, n, k, -1, (float *)a->data, lda, (float *)b->data, ldb, 1,
		            (float *)c->data, ldc);
	else if (c->dtype == KOPS_F64)
		cblas_dgemm(order, of_a, of_b, m, n, k, -1, (double *)a->data, lda, (double *)b->data, ldb, 1,
		            (double *)c->data, ldc);
	else if (c->dtype == KOPS_C64)
		cblas_cgemm(order, of_a, of_b, m, n, k, minus32, a->data, lda, b->data, ldb, one32, c->data,
		            ldc);
	else
		cblas_zgemm(order, of_a, of_b, m, n, k, minus, a->data, lda, b->data, ldb, one, c->data, ldc);
}

void blas_subtract_square(const struct linalg_matrix *a, const struct linalg_matrix *c)
{
	CBLAS_ORDER order = order_of(c);
	int n = (int)c->rows, k = (int)a->cols, lda = lines_apart(a), ldc = lines_apart(c);

	if (n == 0 || k == 0)
		return;
	if (c->dtype == KOPS_F32)
		cblas_ssyrk(order, CblasLower, CblasNoTrans, n, k, -1, (float *)a->data, lda, 1,
		            (float *)c->data, ldc);
	else if (c->dtype == KOPS_F64)
		cblas_dsyrk(order, CblasLower, CblasNoTrans, n, k, -1, (double *)a->data, lda, 1,
		            (double *)c->data, ldc);
	else if (c->dtype == KOPS_C64)
		cblas_cherk(order, CblasLower, CblasNoTrans, n, k, -1, a->data, lda, 1, c->data, ldc);
	else
		cblas_zherk(order, CblasLower, CblasNoTrans, n, k, -1, a->data, lda, 1, c->data, ldc);
}

/* The lower triangle by rows is the upper one by columns, and Lᵀ the factor there. */
int blas_cholesky(const struct linalg_matrix *m)
{
	const char *uplo = is_by_columns(m) ? "L" : "U";
	int n = (int)m->rows, ld = lines_apart(m), info = 0;

	if (n == 0)
		return 0;
	if (m->dtype == KOPS_F32)
		spotrf_(uplo, &n, (float *)m->data, &ld, &info, 1);
	else if (m->dtype == KOPS_F64)
		dpotrf_(uplo, &n, (double *)m->data, &ld, &info, 1);
	else if (m->dtype == KOPS_C64)
		cpotrf_(uplo, &n, (float *)m->data, &ld, &info, 1);
	else
		zpotrf_(uplo, &n, (double *)m->data, &ld, &info, 1);
	return info;
}
