#include "measure.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cases.h"
#include "report/samples.h"

#define SAMPLE_US     1e3  /* a sample's least length */
#define SETTLING_RUNS 2    /* the first run of a kernel may include its loading */
#define SETTLING_US   50e3 /* longer runs need no settling */
#define WARMUP_US     1e6
#define TRIAL_JOBS    100 /* most jobs for trials of a shape, which other clients may send too */
#define TRIAL_US      100e3
#define ENOUGH_US     2e6
#define ENOUGH        5 /* least number of samples */
#define MOST_US       10e6
#define ALONE_US      5e6

struct measuring {
	struct bench *b;
	const struct measurement *what;
	const struct operands *operands;
	struct bench_row *row;
	size_t n_sets;
	bool learning;   /* of kopsd, by the last job */
	kops_job *again; /* the one job of the samples; NULL: each has its own */
	struct samples us, upload, compute, download;
};

static struct step step_on(const struct measuring *r, size_t set)
{
	struct step step = operands_step(r->operands, set);

	step.set.kernel = r->what->kernel;
	step_set_precision(&step, r->b->cli->flags.precision);
	return step;
}

/* Runs one job over the next sets, or the one job of all samples once more. done_with() it. */
static int run_job(struct measuring *r, uint64_t launches, kops_job **ret_job, double *ret_wall_us)
{
	struct step steps[LAUNCHES_MAX];

	*ret_job = r->again;
	if (r->again)
		return bench_job_again(r->b, r->again, ret_wall_us);
	for (uint64_t i = 0; i < launches; i++)
		steps[i] = step_on(r, (r->b->next_set + i) % r->n_sets);
	int rc = bench_job(r->b, steps, launches, ret_job, ret_wall_us);
	if (rc < 0)
		return rc;
	r->b->next_set = (r->b->next_set + launches) % r->n_sets;
	if (r->b->again)
		r->again = *ret_job;
	return 0;
}

static void done_with(const struct measuring *r, kops_job *job)
{
	if (job != r->again)
		kops_job_free(job);
}

/* Returns the time of one launch of a job. done_with() *ret_job, which may be NULL. */
static int launch(struct measuring *r, uint64_t launches, kops_job **ret_job, double *ret_us)
{
	double wall_us;
	kops_job *job;

	int rc = run_job(r, launches, &job, &wall_us);
	if (rc < 0)
		return rc;
	r->learning = kops_receipt_op(kops_job_receipt(job), 0)->learning;
	*ret_us = (r->b->host ? wall_us : kops_job_receipt(job)->compute_us) / (double)launches;
	if (ret_job)
		*ret_job = job;
	else
		done_with(r, job);
	return 0;
}

/* ---- the first run ---- */

static void note_op(struct bench_row *row, const kops_op_receipt *op)
{
	bench_put(row->kernel, sizeof(row->kernel), op->kernel);
	bench_put(row->why, sizeof(row->why), op->why);
	bench_put(row->passed_over, sizeof(row->passed_over), op->passed_over);
	row->larger_errors = op->larger_errors;
	row->flops = op->flops;
	row->bytes = op->bytes;
}

static int check_first(struct measuring *r)
{
	struct bench_row *row = r->row;
	struct step step = step_on(r, 0);
	struct check check;

	int rc = bench_check(r->b, &step, &check);
	if (rc < 0)
		return rc;
	row->max_error = check.max_error;
	row->error_to_bound = check.error > 0 ? check.error / check.bound : 0;
	row->wrong = !check_passed(&check);
	if (row->wrong)
		snprintf(row->note, sizeof(row->note),
		         "WRONG at row %" PRIu64 ", column %" PRIu64 ": %.9g where %.9g is right", check.row,
		         check.column, check.got, check.want);
	return 0;
}

/* Starts at set 0, whose output holds NaN, to find elements that are not written. */
static int run_and_check(struct measuring *r, uint64_t launches, double *ret_us)
{
	size_t next_set = r->b->next_set;
	kops_job *job;
	int rc = r->what->check ? operands_poison(r->b, r->operands) : 0;

	r->b->next_set = 0;
	if (rc == 0)
		rc = launch(r, launches, &job, ret_us);
	r->b->next_set = next_set;
	if (rc < 0)
		return rc;
	note_op(r->row, kops_receipt_op(kops_job_receipt(job), 0));
	done_with(r, job);
	r->row->tensor_cores =
	    bench_kernel_on_tensor_cores(r->b->info, r->b->kind, r->operands->step.op->name, r->row->kernel);
	return r->what->check ? check_first(r) : 0;
}

/* Returns true if kopsd may try several kernels on the first jobs of the shape. */
static bool may_be_tried(const struct measuring *r, double us)
{
	return r->what->settled && r->learning && us <= TRIAL_US;
}

static int run_trials(struct measuring *r)
{
	for (unsigned i = 0; i < TRIAL_JOBS && r->learning; i++) {
		double us;
		int rc = launch(r, r->row->launches, NULL, &us);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* ---- samples ---- */

static int settle_launches(struct measuring *r, double first_us, double *ret_least_us)
{
	double least = first_us;

	for (unsigned i = 0; i < SETTLING_RUNS && first_us < SETTLING_US; i++) {
		double us;
		int rc = launch(r, 1, NULL, &us);
		if (rc < 0)
			return rc;
		least = fmin(least, us);
	}
	if (r->what->launches > 0)
		r->row->launches =
		    (uint64_t)fmax(fmin((double)r->what->launches, ALONE_US / fmax(least, 1)), 1);
	else if (!r->b->host && least < SAMPLE_US)
		r->row->launches = (uint64_t)fmin(ceil(SAMPLE_US / fmax(least, 1)), LAUNCHES_MAX);
	*ret_least_us = least;
	return 0;
}

static int warm_up(struct measuring *r)
{
	double start = cli_now_us();

	for (uint64_t i = 0; i < r->b->warmup && cli_now_us() - start < WARMUP_US; i++) {
		double us;
		int rc = launch(r, r->row->launches, NULL, &us);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int sample(struct measuring *r)
{
	kops_job *job;
	double us;

	int rc = launch(r, r->row->launches, &job, &us);
	if (rc < 0)
		return rc;
	const kops_receipt *receipt = kops_job_receipt(job);
	samples_add(&r->us, us);
	samples_add(&r->upload, receipt->upload_us);
	samples_add(&r->compute, receipt->compute_us);
	samples_add(&r->download, receipt->download_us);
	done_with(r, job);
	return 0;
}

static int take_samples(struct measuring *r)
{
	double start = cli_now_us();

	while (r->us.n < r->what->reps) {
		double spent = cli_now_us() - start;
		if ((spent > ENOUGH_US && r->us.n >= ENOUGH) || spent > MOST_US)
			break;
		int rc = sample(r);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int run_all(struct measuring *r)
{
	double us;
	int rc = run_and_check(r, 1, &us);
	bool is_tried = rc == 0 && may_be_tried(r, us);

	r->row->launches = 1;
	if (rc == 0 && us <= ALONE_US)
		rc = settle_launches(r, us, &us);
	if (rc == 0 && is_tried)
		rc = run_trials(r);
	/* The kernel may have changed, and may be one for many launches. */
	if (rc == 0 && r->what->kernel == NULL && (is_tried || r->row->launches > 1))
		rc = run_and_check(r, r->row->launches, &us);
	if (rc < 0)
		return rc;
	if (us > ALONE_US) {
		r->row->launches = 1;
		samples_add(&r->us, us);
		return 0;
	}
	rc = warm_up(r);
	return rc == 0 ? take_samples(r) : rc;
}

/* Rounds to ns: no clock resolves less, and printed times are then read back unchanged. */
static double to_ns(double us)
{
	return round(us * 1e3) / 1e3;
}

static void summarise(struct measuring *r)
{
	struct bench_row *row = r->row;

	row->samples = r->us.n;
	row->min_us = to_ns(samples_quantile(&r->us, 0));
	row->median_us = to_ns(samples_quantile(&r->us, 0.5));
	row->max_us = to_ns(samples_quantile(&r->us, 1));
	if (!r->b->host || r->upload.n == 0)
		return;
	row->upload_us = samples_quantile(&r->upload, 0.5);
	row->compute_us = samples_quantile(&r->compute, 0.5);
	row->download_us = samples_quantile(&r->download, 0.5);
}

static int run_with_room(struct measuring *r)
{
	int rc = run_all(r);

	if (rc == 0)
		summarise(r);
	else if (bench_is_refusal(rc))
		bench_put(r->row->note, sizeof(r->row->note), r->b->why);
	return bench_is_refusal(rc) ? 0 : rc;
}

int measure(struct bench *b, const struct measurement *what, const struct operands *operands,
            struct bench_row *ret_row)
{
	struct bench_row row = bench_row_blank();
	struct measuring r = {.b = b,
	                      .what = what,
	                      .operands = operands,
	                      .row = &row,
	                      .n_sets = what->mode == BENCH_COLD ? operands->n_sets : 1};
	size_t room = what->reps;
	int rc = KOPS_E_NOMEM;

	row.mode = what->mode;
	row.sets = r.n_sets;
	bench_put(row.kernel, sizeof(row.kernel), what->kernel ? what->kernel : "auto");
	snprintf(b->why, sizeof(b->why), "out of memory; fewer --reps need less");
	if (samples_init(&r.us, room) == 0 && samples_init(&r.upload, room) == 0 &&
	    samples_init(&r.compute, room) == 0 && samples_init(&r.download, room) == 0)
		rc = run_with_room(&r);
	if (r.again)
		kops_job_free(r.again);
	samples_free(&r.us);
	samples_free(&r.upload);
	samples_free(&r.compute);
	samples_free(&r.download);
	if (rc == 0)
		*ret_row = row;
	return rc;
}
