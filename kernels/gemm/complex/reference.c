#include "gemm/complex/reference.h"

#include "gemm/complex/number.h"
#include "gemm/gemm.h"

#define STRIP 64 /* columns of c that one sweep over K accumulates */

/* sums[j] = the sum over K of a[i, k] * b[k, from + j]. */
static void accumulate(const struct op_args *args, const char *a_row, const char *b, int64_t from,
                       unsigned width, struct number sums[STRIP])
{
	const struct view *va = &args->views[GEMM_A], *vb = &args->views[GEMM_B];
	const struct gemm_params *p = &args->params.gemm;

	memset(sums, 0, width * sizeof *sums);
	for (int64_t k = 0; k < (int64_t)va->shape[2]; k++) {
		struct number x =
		    number_conjugate(number_load(a_row, va->dtype, k * va->strides[2]), p->conj_a);
		int64_t at = k * vb->strides[1] + from * vb->strides[2];
		for (unsigned j = 0; j < width; j++) {
			struct number y = number_load(b, vb->dtype, at + j * vb->strides[2]);
			sums[j] = number_add_product(sums[j], x, number_conjugate(y, p->conj_b));
		}
	}
}

/* at: the first element's index in c. */
static void finish_strip(const struct op_args *args, char *c, int64_t at, unsigned width,
                         const struct number sums[STRIP])
{
	const struct gemm_params *p = &args->params.gemm;
	const struct number alpha = {p->alpha, p->alpha_imag}, beta = {p->beta, p->beta_imag};
	const struct view *vc = &args->views[GEMM_C];

	for (unsigned j = 0; j < width; j++, at += vc->strides[2]) {
		struct number y = {0, 0};
		if (gemm_reads_old(args))
			y = number_add_product(y, beta, number_load(c, vc->dtype, at));
		if (gemm_has_product(args))
			y = number_add_product(y, alpha, sums[j]);
		number_store(c, vc->dtype, at, y);
	}
}

void gemm_reference_complex(const struct op_args *args, const char *a, const char *b, char *c)
{
	const struct view *va = &args->views[GEMM_A], *vc = &args->views[GEMM_C];
	int64_t row_bytes = va->strides[1] * (int64_t)dtype_size(va->dtype), cols = (int64_t)vc->shape[2];
	struct number sums[STRIP];

	for (int64_t i = 0; i < (int64_t)vc->shape[1]; i++)
		for (int64_t j = 0; j < cols; j += STRIP) {
			unsigned width = cols - j < STRIP ? (unsigned)(cols - j) : STRIP;
			if (gemm_has_product(args))
				accumulate(args, a + i * row_bytes, b, j, width, sums);
			finish_strip(args, c, i * vc->strides[1] + j * vc->strides[2], width, sums);
		}
}
