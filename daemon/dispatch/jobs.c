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

/* Where it waited for a buffer, which may be there by now. */
static void unblock(struct sched_job *sched)
{
	struct job *job = job_of_sched(sched);

	if (job->sched.blocked && !uses_are_pending(&job->uses))
		sched_unblock(&job->engine->sched, &job->sched);
}

void jobs_unblock(struct engine *e)
{
	if (e->sched.blocked > 0)
		sched_each_waiting(&e->sched, unblock);
	jobs_dispatch(e);
}

/* One that is paused counts as running. */
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
