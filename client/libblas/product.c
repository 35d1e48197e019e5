/* product.c: sizes and parts of a product. */
#include "product.h"

#include <math.h>

int64_t product_rows_of_a(const struct product *p)
{
	return p->trans_a ? p->k : p->m;
}

int64_t product_cols_of_a(const struct product *p)
{
	return p->trans_a ? p->m : p->k;
}

int64_t product_rows_of_b(const struct product *p)
{
	return p->trans_b ? p->n : p->k;
}

int64_t product_cols_of_b(const struct product *p)
{
	return p->trans_b ? p->k : p->n;
}

int64_t product_count(const struct product *p)
{
	return p->batch > 0 ? p->batch : 1;
}

bool product_is_complex(const struct product *p)
{
	return p->dtype == KOPS_C64 || p->dtype == KOPS_C128;
}

bool product_is_finite(double complex factor)
{
	return isfinite(creal(factor)) && isfinite(cimag(factor));
}

double product_multiplications(const struct product *p)
{
	double whole = (double)product_count(p) * (double)p->m * (double)p->n * (double)p->k;
	return p->c.triangle == WHOLE ? whole : whole / 2;
}

double product_flops(const struct product *p)
{
	return product_multiplications(p) * (product_is_complex(p) ? 8 : 2);
}

double product_bytes(const struct product *p)
{
	double m = (double)p->m, n = (double)p->n, k = (double)p->k;
	double c = p->c.triangle == WHOLE ? m * n : m * n / 2;
	double b = p->b_is_a ? 0 : k * n;
	return (double)product_count(p) * (double)kops_dtype_size(p->dtype) *
	       (m * k + b + c * (p->beta == 0 ? 1 : 2));
}

const void *product_element(const struct product *p, const struct operand *operand, int64_t row, int64_t col)
{
	return (const char *)operand->data + (row + col * operand->ld) * (int64_t)kops_dtype_size(p->dtype);
}

struct product product_part(const struct product *p, bool by_rows, int64_t begin, int64_t end)
{
	struct product part = *p;
	if (by_rows) {
		part.m = end - begin;
		part.a.data = product_element(p, &p->a, p->trans_a ? 0 : begin, p->trans_a ? begin : 0);
		part.c.data = product_element(p, &p->c, begin, 0);
	} else {
		part.n = end - begin;
		part.b.data = product_element(p, &p->b, p->trans_b ? begin : 0, p->trans_b ? 0 : begin);
		part.c.data = product_element(p, &p->c, 0, begin);
	}
	return part;
}
