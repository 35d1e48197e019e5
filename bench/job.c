#include <errno.h>
#include <string.h>
#include <time.h>

#include "bench.h"

#define TIMEOUT_MS_DEFAULT 600000 /* kopsd refuses jobs that it expects to take longer */
#define RETRY_US_MIN       200
#define RETRY_US_MAX       200000
#define OPS_PER_JOB        32
#define FREEING_US         20000
#define FREEING_TRIES      5

static int failed(struct bench *b, int status, const char *sentence)
{
	if (sentence == NULL || sentence[0] == '\0')
		sentence = kops_strerror(status);
	bench_put(b->why, sizeof(b->why), sentence);
	return status;
}

/* ---- the device ---- */

static void set_kind(struct bench *b)
{
	size_t length;

	bench_put(b->kind, sizeof(b->kind), b->device->name);
	for (length = strlen(b->kind); length > 0 && strchr("0123456789", b->kind[length - 1]);)
		b->kind[--length] = '\0';
}

/* As kopsd reads it: "gpu*" is any GPU. NULL: any device. */
static bool is_meant(const char *device, const char *name)
{
	size_t n = name ? strlen(name) : 0;

	if (n > 0 && name[n - 1] == '*')
		return strncmp(device, name, n - 1) == 0;
	return name == NULL || strcmp(device, name) == 0;
}

static const kops_device_info *find_device(const struct bench *b, const char *name)
{
	for (size_t i = 0; i < b->info->n_devices; i++)
		if (is_meant(kops_info_device(b->info, i)->name, name))
			return kops_info_device(b->info, i);
	return NULL;
}

int bench_open(struct bench *b)
{
	const char *name = b->cli->flags.device;

	if (b->cli->flags.timeout_ms == 0)
		b->cli->flags.timeout_ms = TIMEOUT_MS_DEFAULT;
	int rc = cli_open(b->cli);

	if (rc != CLI_OK)
		return rc;
	int status = kops_query(b->cli->handle, &b->info);
	if (status < 0)
		return cli_fail_kops(b->cli, status, kops_error(b->cli->handle));
	b->device = find_device(b, name);
	if (b->device == NULL)
		return cli_fail(b->cli, CLI_FAILED, "kopsd has no device %s; `kops-client devices` lists them",
		                name ? name : "at all");
	b->jobs_on = name ? name : b->device->name;
	set_kind(b);
	return CLI_OK;
}

void bench_close(struct bench *b)
{
	kops_free(b->content.shared);
	if (b->content.used != b->content.shared)
		kops_free(b->content.used);
	if (b->info)
		kops_info_free(b->info);
}

/* ---- memory and jobs ---- */

void bench_sleep_us(uint64_t us)
{
	struct timespec t = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};

	while (nanosleep(&t, &t) < 0 && errno == EINTR)
		;
}

void bench_back_off(const kops_job *job)
{
	uint64_t us = kops_job_retry_after_us(job);

	bench_sleep_us(us < RETRY_US_MIN ? RETRY_US_MIN : us > RETRY_US_MAX ? RETRY_US_MAX : us);
}

/* *ret_wall_us: of the attempt that was accepted. */
static int run_patiently(struct bench *b, kops_job *job, double *ret_wall_us)
{
	uint32_t timeout_ms = b->cli->flags.timeout_ms;
	double end = cli_now_us() + timeout_ms * 1e3;

	for (;;) {
		double start = cli_now_us();
		int status = kops_submit(job, NULL, NULL);
		if (status == 0)
			status = kops_wait(job, (int)timeout_ms);
		*ret_wall_us = cli_now_us() - start;
		if (status != KOPS_E_BUSY || cli_now_us() >= end)
			return status;
		bench_back_off(job);
	}
}

/* Memory that was just freed counts until the device has released it. */
int bench_alloc(struct bench *b, uint64_t bytes, bool shared, kops_buffer **ret_buffer)
{
	const char *device = shared ? NULL : b->device->name;
	unsigned flags = shared ? KOPS_SHARED : KOPS_RESIDENT;
	int status = kops_alloc(b->cli->handle, bytes, flags, device, ret_buffer);

	for (int i = 0; i < FREEING_TRIES && (status == KOPS_E_QUOTA || status == KOPS_E_NOMEM); i++) {
		bench_sleep_us(FREEING_US);
		status = kops_alloc(b->cli->handle, bytes, flags, device, ret_buffer);
	}
	return status < 0 ? failed(b, status, kops_error(b->cli->handle)) : 0;
}

int bench_job(struct bench *b, const struct step *steps, size_t n, kops_job **ret_job, double *ret_wall_us)
{
	kops_job_options options = {.size = sizeof(options),
	                            .device = b->jobs_on,
	                            .priority = b->cli->flags.priority,
	                            .timed = !b->host};
	double wall_us;
	kops_job *job;

	int status = kops_job_new(b->cli->handle, &options, &job);
	if (status < 0)
		return failed(b, status, kops_error(b->cli->handle));
	for (size_t i = 0; i < n && status == 0; i++)
		status = step_enqueue(job, &steps[i]);
	if (status < 0)
		failed(b, status, kops_error(b->cli->handle));
	else if ((status = run_patiently(b, job, &wall_us)) < 0)
		failed(b, status, kops_job_error(job));
	if (status < 0) {
		kops_job_free(job);
		return status;
	}
	if (ret_wall_us)
		*ret_wall_us = wall_us;
	*ret_job = job;
	return 0;
}

int bench_job_again(struct bench *b, kops_job *job, double *ret_wall_us)
{
	int status = run_patiently(b, job, ret_wall_us);

	return status < 0 ? failed(b, status, kops_job_error(job)) : 0;
}

int bench_jobs(struct bench *b, const struct step *steps, size_t n)
{
	for (size_t i = 0; i < n; i += OPS_PER_JOB) {
		kops_job *job;
		int status = bench_job(b, steps + i, n - i < OPS_PER_JOB ? n - i : OPS_PER_JOB, &job, NULL);
		if (status < 0)
			return status;
		kops_job_free(job);
	}
	return 0;
}

bool bench_is_refusal(int status)
{
	return status == KOPS_E_UNSUPPORTED || status == KOPS_E_QUOTA || status == KOPS_E_NOMEM ||
	       status == KOPS_E_DTYPE;
}
