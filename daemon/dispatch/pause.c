#include "dispatch/pause.h"

#include <math.h>

/* Beyond, there is no need to say when. */
#define MAX_AFTER_US 1e12

/* A suspect that runs alone keeps them all. */
static bool other_devices_wait(const struct engine *e, const struct job *suspect)
{
	for (unsigned i = 0; i < e->n_devices; i++)
		if (i != suspect->sched.device && e->sched.devices[i].waiting)
			return true;
	return false;
}

/* When a job that runs should give way: at once where nobody waits for it any more. */
static double gives_way_after_us(const struct engine *e, const struct job *job)
{
	double us = job->is_withdrawn ? 0 : sched_yields_after_us(&e->sched, &job->sched);

	return job == e->suspect && other_devices_wait(e, job) ? fmin(us, SCHED_TURN_US) : us;
}

/* The first that was started is the one that a device which computes at once is at. */
void device_gives_way(struct engine *e, unsigned index)
{
	const struct job *job = list_first(&e->devices[index].out, struct job, out);
	double after_us;

	if (!job || !job->sched.may_pause)
		return;
	after_us = gives_way_after_us(e, job);
	if (after_us < MAX_AFTER_US)
		device_pause_at(e->devices[index].device, job->resumed_ns + (uint64_t)(after_us * 1e3));
}

void job_pause(struct job *job)
{
	job_move(job, JOB_PAUSED);
	job_no_longer_alone(job);
	job->work.execute = NULL; /* what it pins is pinned */
	list_push_first(&job_device(job)->paused, &job->paused);
	sched_pause(&job->engine->sched, &job->sched, run_left_us(&job->run));
}
