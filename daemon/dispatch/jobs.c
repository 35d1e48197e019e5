#include "dispatch/jobs.h"

#include "dispatch/admit.h"
#include "dispatch/deadline.h"
#include "dispatch/dispatch.h"
#include "dispatch/lasting.h"
#include "job/finish.h"

void jobs_init(struct engine *e)
{
	admit_init(e);
	deadlines_init(e);
	lasting_init(e);
}

bool job_waits_for_buffers(struct job *job)
{
	struct buffer *buffer = uses_pending(&job->uses);

	if (buffer)
		list_push_last(&buffer->waiting, &job->waiting);
	return buffer;
}

/* Lets the first waiting job start, or wait for its next buffer. */
static bool unblock_step(struct errand *errand)
{
	struct buffer *b = container_of(errand, struct buffer, unblocking);
	struct job *job = list_take(&b->waiting, struct job, waiting);

	if (job && !job_waits_for_buffers(job)) {
		sched_unblock(&job->engine->sched, &job->sched);
		jobs_dispatch(job->engine);
	}
	if (!list_is_empty(&b->waiting))
		return true;
	buffer_unref(b);
	return false;
}

void jobs_unblock(struct buffer *buffer)
{
	buffer->refs++;
	errands_add(&buffer->account->errands, &buffer->unblocking, unblock_step);
}

/* A paused job counts as running. */
static void shut_job_down(struct sched_job *sched)
{
	struct job *job = job_of_sched(sched);

	if (job->state == JOB_QUEUED)
		job_end_queued(job, JOB_FAILED, KOPS_E_SHUTDOWN, NULL);
}

void jobs_shut_down(struct engine *e)
{
	sched_each_waiting(&e->sched, shut_job_down);
}
