/* blocking.c: the calls on buffers and jobs that block. */
#include "libkops/base/base.h"
#include "libkops/job/buffer.h"
#include "libkops/job/job.h"
#include "libkops/session/await.h"
#include "libkops/wire/link.h"

/*
 * A virtual machine wakes a sleeper up to 0.35 ms late, including the timer slack. So this thread polls around
 * a job's usual end: for that long, plus this share of the job's time, before and after it.
 */
#define LOOK_OUT_US    350
#define LOOK_OUT_SHARE 32

/* ---- Buffers ---- */

static int await(kops_buffer *b, int64_t timeout_us)
{
	kops *k = b->k;
	struct waiter waiter = {0};
	b->waiter = &waiter;
	int status = client_await(k, &waiter, timeout_us);
	if (!waiter.done) /* else the buffer may be freed */
		b->waiter = NULL;
	return status;
}

/* Does the rest of kops_alloc() and kops_import(). */
static int finish(kops_buffer *b, kops_buffer **ret_buffer)
{
	int status = await(b, client_timeout_us(b->k));
	if (status < 0) {
		kops_free(b);
		return status;
	}
	*ret_buffer = b;
	return 0;
}

int kops_alloc(kops *k, uint64_t bytes, unsigned flags, const char *device, kops_buffer **ret_buffer)
{
	kops_buffer *b;
	int status = client_may_wait(k);
	if (status == 0)
		status = kops_alloc_start(k, bytes, flags, device, NULL, NULL, &b);
	return status < 0 ? status : finish(b, ret_buffer);
}

int kops_import(kops *k, int fd, uint64_t bytes, unsigned flags, kops_buffer **ret_buffer)
{
	kops_buffer *b;
	int status = client_may_wait(k);
	if (status == 0)
		status = kops_import_start(k, fd, bytes, flags, NULL, NULL, &b);
	return status < 0 ? status : finish(b, ret_buffer);
}

/* The Welcome tells whether the daemon knows Attach. */
static int may_attach(kops *k)
{
	int status = client_may_wait(k);
	if (status == 0 && k->link.state != LINK_UP)
		status = client_ping(k, client_until_us(k));
	if (status == 0 && !k->session.names)
		return client_fail(k, KOPS_E_UNSUPPORTED, "%s", CLIENT_NO_NAMES);
	return status;
}

int kops_attach(kops *k, uint32_t uid, const char *name, kops_buffer **ret_buffer)
{
	kops_buffer *b;
	int status = may_attach(k);
	if (status == 0)
		status = client_attach_start(k, uid, name, &b);
	return status < 0 ? status : finish(b, ret_buffer);
}

int kops_buffer_wait(kops_buffer *b, int timeout_ms)
{
	int status = client_may_wait(b->k);
	if (status < 0)
		return status;
	if (b->state == BUFFER_FAILED)
		return client_fail(b->k, b->status, "%s", b->why);
	if (b->state == BUFFER_READY)
		return 0;
	status = await(b, client_us_of(timeout_ms));
	if (status == KOPS_E_TIMEOUT)
		client_fail(b->k, status, "the buffer was not ready after %g s; wait again",
		            timeout_ms / 1000.0);
	return status;
}

int kops_buffer_wait_idle(kops_buffer *b, int timeout_ms)
{
	kops *k = b->k;
	struct waiter waiter = {0};
	int status = client_may_wait(k);
	if (status < 0 || b->operands_out == 0)
		return status;
	b->idle = &waiter;
	status = client_await(k, &waiter, client_us_of(timeout_ms));
	if (!waiter.done) /* else the buffer may be freed */
		b->idle = NULL;
	if (status == KOPS_E_TIMEOUT)
		client_fail(k, status, "a job that uses the buffer was still running after %g s; wait again",
		            timeout_ms / 1000.0);
	return status;
}

/* ---- Jobs ---- */

static void set_look_out(const kops_job *job, struct waiter *waiter)
{
	int64_t lead_us = LOOK_OUT_US + (int64_t)job->usual_us / LOOK_OUT_SHARE;
	bool looks_out = job->by_ring && job->due_us > 0 && job->k->looks.may_look;
	waiter->look_from_us = looks_out ? job->due_us - lead_us : 0;
	waiter->look_until_us = looks_out ? job->due_us + lead_us : 0;
}

static int wait_for(kops_job *job, int64_t timeout_us)
{
	kops *k = job->k;
	struct waiter waiter;
	waiter.done = false;
	job->waiter = &waiter;
	set_look_out(job, &waiter);
	int status = client_await(k, &waiter, timeout_us);
	if (!waiter.done)
		job->waiter = NULL;
	return status;
}

static int wait_further(kops_job *job, int timeout_ms)
{
	int status = wait_for(job, client_us_of(timeout_ms));
	if (status == KOPS_E_TIMEOUT && job->phase == PHASE_OUT)
		client_fail(job->k, status,
		            "the job was not done after %g s and is still running: wait again, or cancel it",
		            timeout_ms / 1000.0);
	return status;
}

int kops_wait(kops_job *job, int timeout_ms)
{
	kops *k = job->k;
	int status = client_may_wait(k);
	if (status < 0)
		return status;
	if (job->phase == PHASE_NEW)
		return client_fail(k, KOPS_E_STATE, "the job was not submitted");
	if (job->phase == PHASE_ENDED)
		return job->status < 0 ? client_fail(k, job->status, "%s", job->error) : 0;
	return wait_further(job, timeout_ms);
}

static int submit(kops_job *job)
{
	int status = client_may_wait(job->k);
	return status < 0 ? status : kops_submit(job, NULL, NULL);
}

int kops_submit_and_wait(kops_job *job, int timeout_ms)
{
	int status = submit(job);
	return status < 0 ? status : wait_further(job, timeout_ms);
}

/* Cancels the job, which nobody waits for any more. */
static int too_late(kops_job *job, int64_t timeout_us)
{
	kops_cancel(job);
	return client_fail(job->k, KOPS_E_TIMEOUT,
	                   "the job was not done after %g s and was cancelled; kopsd may write its outputs "
	                   "until it has stopped: wait for that, or allow more time",
	                   (double)timeout_us / 1e6);
}

static int run(kops_job *job, int64_t timeout_us)
{
	int status = submit(job);
	if (status == 0)
		status = wait_for(job, timeout_us);
	return status == KOPS_E_TIMEOUT && job->phase == PHASE_OUT ? too_late(job, timeout_us) : status;
}

int kops_run_for(kops_job *job, int timeout_ms)
{
	return run(job, client_us_of(timeout_ms));
}

int kops_run(kops_job *job)
{
	return run(job, client_timeout_us(job->k));
}

int kops_job_prepare(kops_job *job)
{
	kops *k = job->k;
	int64_t until_us = client_until_us(k);
	int status = client_may_wait(k);
	if (status == 0 && k->link.state != LINK_UP) /* the Welcome tells what the daemon supports */
		status = client_ping(k, until_us);
	if (status < 0 || job->prepared || !k->jobs.prepares)
		return status;
	status = client_job_may_submit(job);
	if (status < 0)
		return status;
	job->only_prepare = true; /* until the answer comes, which may be after a timeout */
	int64_t left_us = until_us - client_now_us();
	status = run(job, left_us > 0 ? left_us : 0);
	if (job->phase != PHASE_OUT)
		job->only_prepare = false;
	return status;
}
