/* gemm_complex.c: complex products again in float64, row by row, and their parts compared. */
#include "op/gemm_complex.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "dtype.h"
#include "gemm/gemm.h"

#define BUDGET (1ull << 27) /* complex multiply-adds: about a second */

struct number {
	double re, im;
};

struct rows {
	const struct elements *a, *b, *old, *y; /* old: NULL when beta is 0 */
	struct gemm_params params;
	struct number *of_a, *of_b, *of_old, *of_y, *sums;
	double *part, *b_square; /* part: of one of the above, of either length */
};

static struct number product(struct number x, struct number y)
{
	return (struct number){x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
}

/* Bounds add up the absolute values of both parts. */
static double size_of(struct number x)
{
	return fabs(x.re) + fabs(x.im);
}

static void load(struct rows *r, const struct elements *e, uint64_t row, bool conjugated, struct number *ret)
{
	struct elements re = elements_part(e, 0), im = elements_part(e, 1);
	uint64_t n = elements_columns(e);

	elements_row(&re, row, 0, n, r->part);
	for (uint64_t i = 0; i < n; i++)
		ret[i].re = r->part[i];
	elements_row(&im, row, 0, n, r->part);
	for (uint64_t i = 0; i < n; i++)
		ret[i].im = conjugated ? -r->part[i] : r->part[i];
}

static void multiply(struct rows *r, uint64_t row)
{
	uint64_t n = elements_columns(r->y), depth = elements_columns(r->a), m = r->y->shape[r->y->rank - 2];

	memset(r->sums, 0, n * sizeof *r->sums);
	memset(r->b_square, 0, n * sizeof *r->b_square);
	load(r, r->a, gemm_operand_row(r->a, r->y, row, row % m), r->params.conj_a, r->of_a);
	for (uint64_t k = 0; k < depth; k++) {
		load(r, r->b, gemm_operand_row(r->b, r->y, row, k), r->params.conj_b, r->of_b);
		for (uint64_t j = 0; j < n; j++) {
			struct number term = product(r->of_a[k], r->of_b[j]);
			r->sums[j].re += term.re;
			r->sums[j].im += term.im;
			r->b_square[j] += r->of_b[j].re * r->of_b[j].re + r->of_b[j].im * r->of_b[j].im;
		}
	}
}

static double norm_of_a(const struct rows *r)
{
	double square = 0;

	for (uint64_t k = 0; k < elements_columns(r->a); k++)
		square += r->of_a[k].re * r->of_a[k].re + r->of_a[k].im * r->of_a[k].im;
	return sqrt(square);
}

/* What is not finite passes: which part then becomes NaN depends on how a complex product is written. */
static void compare(struct check *c, uint64_t row, uint64_t column, struct number got, struct number want,
                    double bound, double largest)
{
	if (isfinite(bound)) {
		check_compare(c, row, column, got.re, want.re, bound, largest);
		check_compare(c, row, column, got.im, want.im, bound, largest);
		c->compared -= 2;
	}
	c->compared++;
}

static void compare_row(struct rows *r, uint64_t row, struct check *c)
{
	const struct gemm_params *p = &r->params;
	const struct number alpha = {p->alpha, p->alpha_imag}, beta = {p->beta, p->beta_imag}, zero = {0, 0};
	kops_dtype component = dtype_component(r->y->dtype);
	const struct element_type *type = element_type(component);
	/* c128 is checked by f64, which may be as wrong itself. */
	double accumulate = type->roundoff * (component == KOPS_F64 ? 2 : 1);
	double per_norm = size_of(alpha) * accumulate * check_sum_growth(2 * elements_columns(r->a));
	double a_norm = size_of(alpha) == 0 ? 0 : norm_of_a(r);

	load(r, r->y, row, false, r->of_y);
	if (r->old)
		load(r, r->old, row, false, r->of_old);
	for (uint64_t j = 0; j < elements_columns(r->y); j++) {
		struct number scaled = size_of(alpha) == 0 ? zero : product(alpha, r->sums[j]);
		struct number kept = r->old ? product(beta, r->of_old[j]) : zero;
		struct number want = {scaled.re + kept.re, scaled.im + kept.im};
		double terms =
		    size_of(alpha) * size_of(r->sums[j]) + (r->old ? size_of(beta) * size_of(r->of_old[j]) : 0);
		double of_norms = a_norm == 0 ? 0 : per_norm * a_norm * sqrt(r->b_square[j]);
		compare(c, row, j, r->of_y[j], want,
		        of_norms + 4 * type->roundoff * terms + 4 * check_tiny_error(component), type->largest);
	}
}

static int allocate(struct rows *r)
{
	uint64_t n = elements_columns(r->y), depth = elements_columns(r->a), longer = n > depth ? n : depth;

	r->of_a = calloc(depth + 1, sizeof *r->of_a);
	r->of_b = calloc(n + 1, sizeof *r->of_b);
	r->of_old = calloc(n + 1, sizeof *r->of_old);
	r->of_y = calloc(n + 1, sizeof *r->of_y);
	r->sums = calloc(n + 1, sizeof *r->sums);
	r->part = calloc(longer + 1, sizeof *r->part);
	r->b_square = calloc(n + 1, sizeof *r->b_square);
	return r->of_a && r->of_b && r->of_old && r->of_y && r->sums && r->part && r->b_square ? 0
	                                                                                       : KOPS_E_NOMEM;
}

static void release(struct rows *r)
{
	free(r->of_a);
	free(r->of_b);
	free(r->of_old);
	free(r->of_y);
	free(r->sums);
	free(r->part);
	free(r->b_square);
}

int gemm_check_complex(const struct step *step, const struct elements *in, const struct elements *y,
                       struct check *ret_check)
{
	struct rows r = {.a = &in[GEMM_A], .b = &in[GEMM_B], .y = y};
	struct op_args args = {.op = op_by_name(step->op->name)};
	double row_cost = (double)elements_columns(y) * (double)elements_columns(r.a);
	struct check c = {.elements = elements_count(y), .us = cli_now_us()};
	struct check_sample s = check_sample_rows(elements_rows(y), row_cost, (double)BUDGET, &c);
	int rc = allocate(&r);

	step_set_attributes(step, &args);
	r.params = args.params.gemm;
	r.old = gemm_reads_old(&args) ? step->old : NULL;
	for (uint64_t i = 0; i < s.n && rc == 0; i++) {
		uint64_t row = check_sample_row(&s, i);
		multiply(&r, row);
		compare_row(&r, row, &c);
	}
	release(&r);
	c.us = cli_now_us() - c.us;
	*ret_check = c;
	return rc;
}
