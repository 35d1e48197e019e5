#include "beside/light.h"

#include <errno.h>
#include <time.h>

#include "operands.h"

#define WARMUP    60   /* runs after which kopsd has prepared the job and settled its kernel */
#define COUNT_MIN 30   /* runs that are measured in any case */
#define LONG_US   30e6 /* time for jobs beside one load; if they are long, fewer are measured */

static int failed(struct light *l, int status, const char *sentence)
{
	bench_put(l->bench->why, sizeof(l->bench->why), sentence[0] ? sentence : kops_strerror(status));
	return status;
}

static int make_job(struct light *l)
{
	kops *k = l->bench->cli->handle;
	kops_job_options options = {.size = sizeof(options), .device = l->bench->device->name};
	uint64_t n = LIGHT_SIZE, bytes = n * n * sizeof(float);
	int rc = kops_alloc(k, 3 * bytes, KOPS_SHARED, NULL, &l->operands);

	if (rc < 0)
		return rc;
	kops_view all = kops_matrix(l->operands, 0, KOPS_F32, 3 * n, n, 0);
	bench_fill(&all, INPUT_UNIFORM, l->bench->seed);
	rc = kops_job_new(k, &options, &l->job);
	if (rc < 0)
		return rc;
	return kops_job_gemm(l->job, 1, kops_matrix(l->operands, 0, KOPS_F32, n, n, 0),
	                     kops_matrix(l->operands, bytes, KOPS_F32, n, n, 0), 0,
	                     kops_matrix(l->operands, 2 * bytes, KOPS_F32, n, n, 0), KOPS_PRECISION_F32, NULL);
}

static int run_once(struct light *l, double *ret_us)
{
	double start = cli_now_us();
	int rc = kops_run(l->job);

	*ret_us = cli_now_us() - start;
	return rc < 0 ? failed(l, rc, kops_job_error(l->job)) : 0;
}

int light_make(struct light *ret, struct bench *bench)
{
	double us;

	*ret = (struct light){.bench = bench};
	int rc = make_job(ret);
	if (rc < 0)
		return failed(ret, rc, kops_error(bench->cli->handle));
	for (int i = 0; i < WARMUP && rc == 0; i++)
		rc = run_once(ret, &us);
	return rc;
}

void light_free(struct light *l)
{
	kops_job_free(l->job);
	kops_free(l->operands);
	*l = (struct light){0};
}

static void sleep_until(double us)
{
	struct timespec t = {.tv_sec = (time_t)(us / 1e6), .tv_nsec = (long)((uint64_t)us % 1000000 * 1000)};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

static void note(struct light_times *t, const struct light *l, double us)
{
	const kops_receipt *r = kops_job_receipt(l->job);

	samples_add(&t->wall, us);
	t->device_us += r->upload_us + r->compute_us + r->download_us;
}

int light_measure(struct light *l, uint64_t count, uint64_t every_us, struct light_times *ret)
{
	double us, start = cli_now_us(), due = start, now = start;
	int rc = samples_init(&ret->wall, (size_t)count);

	ret->late = 0;
	ret->device_us = 0;
	if (rc < 0)
		return failed(l, rc, "");
	for (uint64_t i = 0; i < count && rc == 0 && (i < COUNT_MIN || now - start < LONG_US); i++) {
		if (now > due) {
			ret->late++;
			due = now; /* jobs that were missed are not made up for */
		} else {
			sleep_until(due);
		}
		rc = run_once(l, &us);
		if (rc == 0)
			note(ret, l, us);
		due += (double)every_us;
		now = cli_now_us();
	}
	ret->elapsed_us = now - start;
	return rc;
}
