#include "dispatch/pause.h"

#include <math.h>

#include "base/clock.h"
#include "job/spread.h"

/* Pauses later than this are not requested. */
#define MAX_AFTER_US 1e12

/* Returns true if another device has jobs waiting, which a suspect that runs alone holds up. */
static bool other_devices_wait(const struct engine *e, const struct job *suspect)
{
	for (unsigned i = 0; i < e->n_devices; i++)
		if (i != suspect->sched.device && e->sched.devices[i].waiting)
			return true;
	return false;
}

/* The time after its start when a running job should pause: 0 if nobody waits for its result. */
static double gives_way_after_us(const struct engine *e, const struct job *job)
{
	double us = job->is_withdrawn ? 0 : sched_yields_after_us(&e->sched, &job->sched);

	return job == e->suspect && other_devices_wait(e, job) ? fmin(us, SCHED_QUEUE_SLICE_US) : us;
}

/* A device that computes at once runs the job that was started first, but for those beside it. */
static const struct job *current_job(const struct engine_device *device)
{
	const struct job *job;

	list_for_each (job, &device->out, out)
		if (!job->sched.beside)
			return job;
	return NULL;
}

bool device_makes_way(const struct engine *e, unsigned index)
{
	const struct job *job = current_job(&e->devices[index]);

	return job && isfinite(sched_yields_after_us(&e->sched, &job->sched));
}

void device_gives_way(struct engine *e, unsigned index)
{
	const struct job *job = current_job(&e->devices[index]);
	double after_us;

	if (!job || !job->sched.may_pause)
		return;
	after_us = gives_way_after_us(e, job);
	device_pause_at(e->devices[index].device,
	                after_us < MAX_AFTER_US ? job->resumed_ns + (uint64_t)(after_us * 1e3) : UINT64_MAX);
}

void job_pause(struct job *job)
{
	job_move(job, JOB_PAUSED);
	job_no_longer_alone(job);
	job->work.execute = NULL; /* its buffers are registered already */
	list_push_first(&job_device(job)->paused, &job->paused);
	job->paused_ns = clock_ns();
	job->starts_before = job_device(job)->starts;
	sched_pause(&job->engine->sched, &job->sched,
	            job->is_spread ? spread_left_us(job->spread) : run_left_us(&job->run));
}
