#include "dispatch/withdraw.h"

#include "dispatch/dispatch.h"
#include "dispatch/pause.h"
#include "job/finish.h"

static void abandoned(struct device_work *work)
{
	struct job *job = job_of_work(work);
	struct engine *e = job->engine;

	job_end_paused(job);
	jobs_dispatch(e); /* others may have waited for its memory */
}

static void abandon_run(struct device_work *work, const struct driver *driver, struct device_state *dev)
{
	driver->abandon(dev, &job_of_work(work)->run);
}

void job_abandon(struct job *job)
{
	struct device *device = job_device(job)->device;

	job_no_longer_alone(job);
	sched_remove(&job->engine->sched, &job->sched);
	list_remove(&job->paused);
	if (!device->driver->abandon) {
		job_end_paused(job);
		return;
	}
	job->work = (struct device_work){.execute = abandon_run, .done = abandoned};
	device_submit(device, &job->work);
}

/* If its device is busy with another job, the pause is requested when the device reaches this one. */
bool job_withdraw(struct job *job)
{
	bool is_abandoned = job->is_withdrawn && job->state == JOB_PAUSED;

	job->is_withdrawn = true;
	if (job->state == JOB_RUNNING && !job->sched.may_pause)
		return false;
	if (job->state == JOB_QUEUED)
		job_end_queued(job, JOB_CANCELLED, KOPS_E_CANCELLED, NULL);
	else if (job->state == JOB_RUNNING)
		device_gives_way(job->engine, job->sched.device);
	else if (!is_abandoned)
		job_abandon(job);
	return true;
}

void job_orphan(struct job *job)
{
	job->answer = NULL;
	job->session = NULL;
	job->usage = NULL;
	job_withdraw(job);
}
