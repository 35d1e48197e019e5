/* softmax over the last axis, or its logarithm. */
#include <math.h>

#include "op/check.h"
#include "op/operation.h"

static void want_softmax(const struct check_by_row *op, uint64_t row, double *want, double *bound, double *x)
{
	uint64_t n = elements_columns(op->y);
	kops_dtype dtype = op->y->dtype;
	double u = element_roundoff(KOPS_F32), max = -(double)INFINITY, sum = 0;
	/* Of the result to a 16-bit type; a tenth more, as it is rounded from f32. */
	double last = dtype == KOPS_F32 ? 0 : 1.1 * element_roundoff(dtype);

	elements_row(op->a, row, 0, n, x);
	for (uint64_t j = 0; j < n; j++) {
		x[j] *= op->scale;
		max = x[j] > max || isnan(x[j]) ? x[j] : max;
	}
	for (uint64_t j = 0; j < n; j++)
		sum += exp(x[j] - max);
	for (uint64_t j = 0; j < n; j++) {
		double distance = fabs(x[j] - max);
		/* Rounding of the exponent's argument, of exp() and of the sum. */
		double relative =
		    u * (16 + check_sum_growth(n) + 4 * distance + 2 * fabs(x[j]) + 2 * fabs(max));
		want[j] = op->log ? x[j] - max - log(sum) : exp(x[j] - max) / sum;
		bound[j] = (op->log ? relative : relative * want[j]) + last * fabs(want[j]) +
		           1.1 * check_tiny_error(dtype);
	}
}

int check_softmax(const struct elements *x, const struct elements *y, double scale, bool log,
                  struct check *ret_check)
{
	struct check_by_row op = {.a = x, .y = y, .scale = scale, .log = log, .want = want_softmax};

	return check_by_row(&op, ret_check);
}

static int softmax_enqueue(kops_job *job, const struct step *s)
{
	return kops_job_softmax(job, s->in[0], s->out, s->scale, s->log, s->kernel);
}

static int softmax_check(const struct step *step, struct check *ret_check)
{
	struct elements x = elements_of(&step->in[0]), y = elements_of(&step->out);

	return check_softmax(&x, &y, step->scale, step->log, ret_check);
}

const struct operation operation_softmax = {
    .name = "softmax",
    .n_inputs = 1,
    .dtypes = STEP_DTYPES_TO_F32,
    .shape = step_same_shape,
    .enqueue = softmax_enqueue,
    .check = softmax_check,
};
