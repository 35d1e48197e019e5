/* fma: v = alpha · v + beta, many times. Arithmetic and nothing else. */
#include <math.h>

#include "op/check.h"
#include "op/operation.h"

/* Each step rounds, and passes on alpha times the error that it found. */
static void want_iterated(const struct check_by_row *op, uint64_t row, double *want, double *bound,
                          double *scratch)
{
	uint64_t n = elements_columns(op->y);
	double u = element_roundoff(op->y->dtype), tiny = element_smallest(op->y->dtype);

	elements_row(op->a, row, 0, n, scratch);
	for (uint64_t j = 0; j < n; j++) {
		double v = scratch[j], error = 0;

		for (uint32_t s = 0; s < op->steps; s++) {
			error = fabs(op->alpha) * error + u * fabs(op->alpha * v);
			v = fma(op->alpha, v, op->beta);
			error += u * fabs(v) + tiny;
		}
		want[j] = v;
		bound[j] = 2 * error; /* the reference rounds too, which matters where y is f64 */
	}
}

int check_fma(const struct elements *x, const struct elements *y, double alpha, double beta, uint32_t steps,
              struct check *ret_check)
{
	struct check_by_row op = {
	    .a = x, .y = y, .alpha = alpha, .beta = beta, .steps = steps, .want = want_iterated};

	return check_by_row(&op, ret_check);
}

static int fma_enqueue(kops_job *job, const struct step *s)
{
	return kops_job_fma(job, s->in[0], s->out, s->alpha, s->beta, s->steps, s->kernel);
}

static int fma_check(const struct step *step, struct check *ret_check)
{
	struct elements x = elements_of(&step->in[0]), y = elements_of(&step->out);

	return check_fma(&x, &y, step->alpha, step->beta, step->steps, ret_check);
}

const struct operation operation_fma = {
    .name = "fma",
    .n_inputs = 1,
    .dtypes = STEP_DTYPES_FROM_F32,
    .shape = step_same_shape,
    .enqueue = fma_enqueue,
    .check = fma_check,
};
