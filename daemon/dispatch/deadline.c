#include "dispatch/deadline.h"

#include "base/clock.h"
#include "base/timers.h"
#include "dispatch/dispatch.h"
#include "job/finish.h"

#define EXPIRE_STEP 16u /* jobs checked in one step */

static void on_deadline(uv_timer_t *timer);

static void expire_at(struct engine *e, uint64_t deadline_ns)
{
	uint64_t now = clock_ns(), left_ns = deadline_ns > now ? deadline_ns - now : 0;

	e->expires_ns = deadline_ns;
	timers_start(&e->deadline_timer, on_deadline, (left_ns + 999999) / 1000000, 0);
}

/* Ends jobs whose deadline has passed. Each step ends a few, because each is answered and thousands may have
 * the same deadline. */
static bool expire_step(struct errand *errand)
{
	struct engine *e = container_of(errand, struct engine, expiry);
	uint64_t now = clock_ns();
	struct job *job;

	for (unsigned n = 0; n < EXPIRE_STEP && (job = e->expires_next); n++) {
		e->expires_next = list_next(job, expiring);
		if (job->deadline_ns <= now)
			job_end_queued(job, JOB_FAILED, KOPS_E_DEADLINE, NULL);
		else
			e->earliest_ns = job->deadline_ns < e->earliest_ns ? job->deadline_ns : e->earliest_ns;
	}
	if (e->expires_next)
		return true;
	e->expires_ns = 0;
	if (e->earliest_ns < UINT64_MAX)
		expire_at(e, e->earliest_ns);
	jobs_dispatch(e);
	return false;
}

static void on_deadline(uv_timer_t *timer)
{
	struct engine *e = timer->data;

	if (e->expiry.step)
		return;
	e->expires_next = list_first(&e->expiring, struct job, expiring);
	e->earliest_ns = UINT64_MAX;
	errands_add(&e->accounts.errands, &e->expiry, expire_step);
}

void job_expires(struct job *job)
{
	struct engine *e = job->engine;

	PRE(job->state == JOB_QUEUED && job->deadline_ns);
	list_push_first(&e->expiring, &job->expiring);
	e->earliest_ns = job->deadline_ns < e->earliest_ns ? job->deadline_ns : e->earliest_ns;
	if (!e->expires_ns || job->deadline_ns < e->expires_ns)
		expire_at(e, job->deadline_ns);
}

void deadlines_init(struct engine *e)
{
	uv_timer_init(e->timers, &e->deadline_timer);
	e->deadline_timer.data = e;
}
