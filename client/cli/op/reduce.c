/* reduce: the sum, the largest or the mean over the last axis. */
#include <float.h>
#include <math.h>

#include "op/operation.h"

#define FEW_F32 16 /* roundings of f32: kernels add some hundred terms before float64 takes over */

/* Of f64, whose sums are made in f64, those of the kernel's sum and of the check's. */
static double few_roundings(kops_dtype dtype, uint64_t n)
{
	if (dtype == KOPS_F64)
		return 2 * check_sum_growth(n) * element_type(KOPS_F64)->roundoff;
	return FEW_F32 * element_type(KOPS_F32)->roundoff;
}

static void want_reduced(const struct check_by_row *op, uint64_t row, double *want, double *bound, double *x)
{
	kops_reduction kind = op->step->set.kind;
	uint64_t n = elements_columns(op->a);
	double scale = kind == KOPS_MEAN ? 1 / (double)n : 1, sum = 0, magnitudes = 0;

	elements_row(op->a, row, 0, n, x);
	for (uint64_t i = 0; i < n; i++) {
		sum += x[i];
		magnitudes += fabs(x[i]);
	}
	*want = kind == KOPS_MAX ? check_largest(x, n) : sum * scale;
	*bound = few_roundings(op->y->dtype, n) * magnitudes * scale +
	         1.01 * element_type(op->y->dtype)->roundoff * fabs(*want) + 2 * check_tiny_error(op->y->dtype);
	if (kind == KOPS_MAX)
		*bound = 0;
	else if (magnitudes > (op->y->dtype == KOPS_F64 ? DBL_MAX : (double)FLT_MAX) / 4)
		*bound = (double)INFINITY; /* parts may overflow on their way */
}

/* y gets x's rank: one index on the last axis. */
static void align(struct elements *in, struct elements *y)
{
	if (y->rank < in[0].rank) {
		y->shape[y->rank] = 1;
		y->strides[y->rank++] = 0;
	}
}

static int enqueue(kops_job *job, const struct step *s)
{
	return kops_job_reduce(job, s->in[0], s->out, s->set.kind, s->set.kernel);
}

static const char *const kinds[] = {"sum", "max", "mean", NULL};
static const struct option_type options_kind = {.takes = "sum, max or mean", .words = kinds};

static const struct option_row settings[] = {
    OPTION("kind", 0, "KIND", kind, op.kind, "sum (default), max or mean"), SETTINGS_END};

const struct operation operation_reduce = {
    .name = "reduce",
    .n_inputs = 1,
    .settings = settings,
    .verb =
        {.summary = "sum, max or mean over the last axis of a file",
         .help =
             "The result has X's shape without the last axis, so a matrix gives one number a row; 1 dimension\n"
             "gives one number. f32, f64, f16 and bf16.\n",
         .examples = "  kops-client reduce x.npy -o sums.npy\n"
                     "  kops-client reduce --kind mean -n 1000 x.bin -o means.bin --check\n"},
    .enqueue = enqueue,
    .want = want_reduced,
    .align = align,
    .bench = {.what = "sums of rows",
              .examples = "  kops-bench reduce 4096x1024,64x1048576 --kernel all\n",
              .seed = "64x1024,256x1024,1024x1024,4096x1024,16384x1024,65536x1024,4194304x16,4096x16384,"
                      "64x1048576,262144x1024,1048576x1024",
              .random = {{1, 32}, {1 << 16, 1 << 18}, 1ull << 28},
              .random_cpu = {{1, 32}, {1 << 12, 1 << 14}, 1ull << 21},
              .reads_rows = true},
};
