/* softmax over the last axis, or its logarithm. */
#include <math.h>

#include "op/operation.h"

static void want_softmax(const struct check_by_row *op, uint64_t row, double *want, double *bound, double *x)
{
	const struct settings *set = &op->step->set;
	uint64_t n = elements_columns(op->y);
	kops_dtype dtype = op->y->dtype;
	double u = element_type(dtype == KOPS_F64 ? KOPS_F64 : KOPS_F32)->roundoff, sum = 0;
	/* Of the result to a 16-bit type; a tenth more, as it is rounded from f32. */
	double last = kops_dtype_size(dtype) > 2 ? 0 : 1.1 * element_type(dtype)->roundoff;

	const double sums = dtype == KOPS_F64 ? 2 : 1; /* the check's own errs as much */

	elements_row(op->a, row, 0, n, x);
	for (uint64_t j = 0; j < n; j++)
		x[j] *= opt_or(set->scale, 1);
	double max = check_largest(x, n);

	for (uint64_t j = 0; j < n; j++)
		sum += exp(x[j] - max);
	for (uint64_t j = 0; j < n; j++) {
		double distance = fabs(x[j] - max);
		/* Rounding of the exponent's argument, of exp() and of the sum. */
		double relative =
		    u * (16 + sums * check_sum_growth(n) + 4 * distance + 2 * fabs(x[j]) + 2 * fabs(max));
		want[j] = set->log ? x[j] - max - log(sum) : exp(x[j] - max) / sum;
		bound[j] = (set->log ? relative : relative * want[j]) + last * fabs(want[j]) +
		           1.1 * check_tiny_error(dtype);
	}
}

static int enqueue(kops_job *job, const struct step *s)
{
	return kops_job_softmax(job, s->in[0], s->out, opt_or(s->set.scale, 1), s->set.log, s->set.kernel);
}

static const struct option_row settings[] = {
    OPTION("scale", 0, "X", real, op.scale, "multiply the input by X first; default 1"),
    OPTION("log", 0, NULL, switch, op.log, "the logarithm of the softmax"), SETTINGS_END};

const struct operation operation_softmax = {
    .name = "softmax",
    .n_inputs = 1,
    .settings = settings,
    .verb = {.summary = "softmax over the last axis of a file",
             .help =
                 "Y = softmax(scale · X), over the last axis (each row of a matrix); f32, f64, f16 and bf16.\n",
             .examples = "  kops-client softmax scores.npy -o p.npy\n"
                         "  kops-client softmax -n 1000 --scale 0.125 scores.bin -o p.bin --check\n"
                         "  kops-client softmax --log logits.npy -o logp.npy\n"},
    .enqueue = enqueue,
    .want = want_softmax,
    .bench = {.what = "softmax of rows",
              .examples =
                  "  kops-bench softmax 4096x1024,16384x4096 --kernel all --cache both --csv > softmax.csv\n",
              .seed = "64x1024,256x1024,1024x1024,4096x1024,16384x1024,65536x1024,16384x4096,1024x131072,"
                      "128x1048576,262144x1024,524288x1024",
              .random = {{1, 32}, {1 << 16, 1 << 18}, 1ull << 27},
              .random_cpu = {{1, 32}, {1 << 12, 1 << 14}, 1ull << 20},
              .reads_rows = true,
              .whole_rows = true},
};
