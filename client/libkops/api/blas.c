/* blas.c: products with the arguments of BLAS. The other one-op calls are in calls.c. */
#include "libkops/api/one_op.h"
#include "libkops/base/base.h"

/* Returns the view of a stored rows × cols matrix with leading dimension ld, transposed if asked. */
static int stored(kops *k, kops_trans trans, kops_dtype dtype, uint64_t rows, uint64_t cols,
                  kops_buffer *buffer, uint64_t ld, char name, kops_view *ret_view)
{
	if (trans != KOPS_N && trans != KOPS_T)
		return client_fail(k, KOPS_E_INVALID, "trans_%c is invalid, expected KOPS_N or KOPS_T", name);
	uint64_t stored_cols = trans == KOPS_T ? rows : cols;
	if (ld < stored_cols)
		return client_fail(k, KOPS_E_INVALID, "ld%c = %llu is less than the %llu columns stored", name,
		                   (unsigned long long)ld, (unsigned long long)stored_cols);
	if (trans == KOPS_T)
		*ret_view = kops_transposed(kops_matrix(buffer, 0, dtype, cols, rows, ld));
	else
		*ret_view = kops_matrix(buffer, 0, dtype, rows, cols, ld);
	return 0;
}

struct product {
	kops_trans trans_a, trans_b;
	uint64_t m, n, depth;
	kops_buffer *a, *b, *c;
	uint64_t lda, ldb, ldc;
};

static int gemm(kops *k, kops_dtype dtype, const struct product *p, double alpha, double beta)
{
	kops_view a, b, c;
	kops_job *job = NULL;
	int status = stored(k, p->trans_a, dtype, p->m, p->depth, p->a, p->lda, 'a', &a);
	if (status == 0)
		status = stored(k, p->trans_b, dtype, p->depth, p->n, p->b, p->ldb, 'b', &b);
	if (status == 0)
		status = stored(k, KOPS_N, dtype, p->m, p->n, p->c, p->ldc, 'c', &c);
	if (status == 0)
		status = client_one_op_begin(k, &job);
	if (status < 0)
		return status;
	return client_one_op_finish(k, kops_job_gemm(job, alpha, a, b, beta, c, KOPS_PRECISION_F32, NULL));
}

int kops_sgemm(kops *k, kops_trans trans_a, kops_trans trans_b, uint64_t m, uint64_t n, uint64_t depth,
               float alpha, kops_buffer *a, uint64_t lda, kops_buffer *b, uint64_t ldb, float beta,
               kops_buffer *c, uint64_t ldc)
{
	const struct product p = {trans_a, trans_b, m, n, depth, a, b, c, lda, ldb, ldc};
	return gemm(k, KOPS_F32, &p, alpha, beta);
}

int kops_dgemm(kops *k, kops_trans trans_a, kops_trans trans_b, uint64_t m, uint64_t n, uint64_t depth,
               double alpha, kops_buffer *a, uint64_t lda, kops_buffer *b, uint64_t ldb, double beta,
               kops_buffer *c, uint64_t ldc)
{
	const struct product p = {trans_a, trans_b, m, n, depth, a, b, c, lda, ldb, ldc};
	return gemm(k, KOPS_F64, &p, alpha, beta);
}
