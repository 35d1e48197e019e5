/* fma: v = alpha · v + beta, many times. Arithmetic and nothing else. */
#include <math.h>

#include "op/check.h"
#include "op/operation.h"

static uint32_t steps_of(const struct step *s)
{
	return (uint32_t)count_or(s->set.steps, 1);
}

/* Each step rounds, and passes on alpha times the error that it found. */
static void want_iterated(const struct check_by_row *op, uint64_t row, double *want, double *bound,
                          double *scratch)
{
	uint64_t n = elements_columns(op->y);
	double u = element_type(op->y->dtype)->roundoff, tiny = element_type(op->y->dtype)->smallest;
	double alpha = opt_or(op->step->set.alpha, 1), beta = opt_or(op->step->set.beta, 0);

	elements_row(op->a, row, 0, n, scratch);
	for (uint64_t j = 0; j < n; j++) {
		double v = scratch[j], error = 0;

		for (uint32_t s = 0; s < steps_of(op->step); s++) {
			error = fabs(alpha) * error + u * fabs(alpha * v);
			v = fma(alpha, v, beta);
			error += u * fabs(v) + tiny;
		}
		want[j] = v;
		bound[j] = 2 * error; /* the reference rounds too, which matters where y is f64 */
	}
}

static int enqueue(kops_job *job, const struct step *s)
{
	return kops_job_fma(job, s->in[0], s->out, opt_or(s->set.alpha, 1), opt_or(s->set.beta, 0), steps_of(s),
	                    s->set.kernel);
}

static const struct option_row settings[] = {
    OPTION("alpha", 0, "X", real, op.alpha, "factor of each step; default 1"),
    OPTION("beta", 0, "X", real, op.beta, "what each step adds; default 0"),
    OPTION("steps", 0, "N", count32, op.steps, "how many; default 1"),
    SETTINGS_END,
};

static void operands(struct step *step, kops_dtype dtype, const uint64_t *e)
{
	/* There and back: no overflow and no subnormal numbers, however many steps. */
	step->set.alpha = (struct opt_real){true, -1};
	step->set.beta = (struct opt_real){true, 0.5};
	step->set.steps = (struct opt_count){true, e[1]};
	step->in[0] = step_matrix(dtype, 1, e[0]);
}

const struct operation operation_fma = {
    .name = "fma",
    .n_inputs = 1,
    .dtypes = STEP_DTYPES_FROM_F32,
    .settings = settings,
    .enqueue = enqueue,
    .want = want_iterated,
    .bench = {.what = "arithmetic in registers",
              .form = "ELEMENTSxSTEPS, or the elements alone",
              .examples = "  kops-bench fma --table seed --kernel all\n",
              .seed = "4194304x1,4194304x4,4194304x16,4194304x64,4194304x256,4194304x1024,4194304x4096",
              .alone = 256,
              .most = {0, UINT32_MAX},
              .random = {{1024, 3}, {1 << 24, 1 << 9}, 1ull << 31},
              .random_cpu = {{1024, 3}, {1 << 16, 1 << 6}, 1ull << 22},
              .counts_flops = true,
              .is_measure = true,
              .operands = operands},
};
