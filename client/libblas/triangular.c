/* triangular.c: splits a triangular matrix into halves and applies them to the halves of b. */
#include "triangular.h"

#include "compute.h"

struct half {
	int64_t begin, extent; /* rows and columns of the triangle */
};

static int64_t order_of(const struct triangular *t)
{
	return t->left ? t->m : t->n;
}

/* Returns true if the halves can be computed here. The next BLAS gets the other calls, errors included. */
static bool is_usual(const struct triangular *t)
{
	return !t->invalid && t->m > 0 && t->n > 0 && t->a.ld >= order_of(t) && t->b.ld >= t->m &&
	       t->alpha != 0 && product_is_finite(t->alpha);
}

static const void *element(const struct triangular *t, const struct operand *matrix, int64_t row, int64_t col)
{
	return (const char *)matrix->data + (row + col * matrix->ld) * (int64_t)kops_dtype_size(t->dtype);
}

/* Returns the rows or columns of b that belong to a half. */
static struct operand part_of_b(const struct triangular *t, struct half half)
{
	struct operand part = t->b;
	part.data = element(t, &t->b, t->left ? half.begin : 0, t->left ? 0 : half.begin);
	return part;
}

/* Returns the call for one half alone. */
static struct triangular part(const struct triangular *t, struct half half, double complex alpha)
{
	struct triangular result = *t;
	result.alpha = alpha;
	*(t->left ? &result.m : &result.n) = half.extent;
	result.a.data = element(t, &t->a, half.begin, half.begin);
	result.b = part_of_b(t, half);
	return result;
}

/*
 * Returns the product that adds half `from`, times alpha, to half `to`, through the block beside the diagonal.
 */
static struct product between(const struct triangular *t, struct half from, struct half to,
                              double complex alpha, double complex beta)
{
	struct half rows = t->left ? to : from, cols = t->left ? from : to;
	struct operand a = t->a, x = part_of_b(t, from);
	a.data =
	    t->trans ? element(t, &t->a, cols.begin, rows.begin) : element(t, &t->a, rows.begin, cols.begin);
	return (struct product){.dtype = t->dtype,
	                        .trans_a = t->left && t->trans,
	                        .trans_b = !t->left && t->trans,
	                        .conj_a = t->left && t->conj,
	                        .conj_b = !t->left && t->conj,
	                        .m = t->left ? to.extent : t->m,
	                        .n = t->left ? t->n : to.extent,
	                        .k = from.extent,
	                        .alpha = alpha,
	                        .beta = beta,
	                        .a = t->left ? a : x,
	                        .b = t->left ? x : a,
	                        .c = part_of_b(t, to)};
}

/* Computes a valid call by halves. Returns what triangular_compute() does. */
static bool by_halves(const struct triangular *t, const struct triangular_calls *calls, struct call *call)
{
	int64_t order = order_of(t);
	struct half halves[2] = {{0, order / 2}, {order / 2, order - order / 2}};
	/* For op(a) and b, the result of the first half depends on that half only. */
	bool op_is_lower = t->upper == t->trans;
	struct half first = halves[t->left != op_is_lower], second = halves[t->left == op_is_lower];
	struct product product =
	    t->solve ? between(t, first, second, -1, t->alpha) : between(t, first, second, t->alpha, 1);
	struct triangular parts[2] = {part(t, first, t->alpha), part(t, second, t->solve ? 1 : t->alpha)};

	if (!compute_is_wanted(&product, call))
		return false;
	calls->triangular(&parts[t->solve ? 0 : 1]);
	calls->gemm(&product);
	calls->triangular(&parts[t->solve ? 1 : 0]);
	call->outcome = OUTCOME_KOPSD;
	return true;
}

bool triangular_compute(const struct triangular *t, const struct triangular_calls *calls, struct call *call)
{
	call->outcome = OUTCOME_UNUSUAL;
	if (!is_usual(t))
		return false;
	call->outcome = OUTCOME_SMALL;
	return order_of(t) > 1 && by_halves(t, calls, call);
}
