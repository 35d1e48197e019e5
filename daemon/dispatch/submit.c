#include "dispatch/submit.h"

#include "dispatch/back.h"
#include "dispatch/deadline.h"
#include "dispatch/dispatch.h"
#include "dispatch/jobs.h"

static void begin_trial(struct job *job)
{
	struct learned *learned = job_device(job)->learned;
	bool is_settled;

	job->settled = !job->run.has_first_launches;
	if (!learned || job->n_alike == 0)
		return;
	if (learned_begin(learned, &job->run, &job->trial, &is_settled))
		job->run.timed = true;
	job->settled &= is_settled;
	job->usual_us = job->trial.usual_us;
}

void job_submit(struct job *job)
{
	struct engine *e = job->engine;

	job->account->jobs++;
	job->work.done = job_run_is_back;
	job->tile_done = job_tile_is_back;
	job->sched.cost_us = job->run.plan_us;
	job->sched.blocked = job->sched.blocked && job_waits_for_buffers(job);
	begin_trial(job);
	job->sched.may_pause = device_may_pause(job_device(job)->device, &job->run);
	job_move(job, JOB_QUEUED);
	sched_add(&e->sched, job->sched.queue, &job->sched);
	if (job->deadline_ns)
		job_expires(job);
	jobs_dispatch(e);
}
