#include "dispatch/dispatch.h"

#include "dispatch/admit.h"
#include "dispatch/pause.h"
#include "dispatch/start.h"

/* Returns true if the job must not start now. A suspect runs alone: it waits until nothing is in flight, and
 * nothing starts until it is paused or has ended. Other devices choose their jobs before it. */
static bool has_to_wait(struct engine *e, struct job *job)
{
	if (!e->suspect && job->is_suspect && e->others_first) {
		e->suspect_waits = true;
		return true;
	}
	if (!e->suspect && job->is_suspect)
		e->suspect = job;
	return e->suspect && (e->suspect != job || engine_has_jobs_out(e));
}

/*
 * Returns true if the next job may run beside those in flight: only if the current one would be paused for
 * it. A paused job returns to the thread that it had, and jobs of one queue keep their order. So do jobs that
 * share a buffer: on a device that runs one job at a time, a client may never have noticed that it races.
 */
static bool may_be_beside(const struct job *job)
{
	return job->state != JOB_PAUSED && !job->sched.queue->running &&
	       device_has_room_beside(job_device(job)->device, &job->run) && !uses_meet(&job->uses, false) &&
	       device_makes_way(job->engine, job->sched.device);
}

/* Finds the next job a place on its device. */
static bool take_place(struct job *job)
{
	const struct device *device = job_device(job)->device;
	bool is_short = job->run.plan_us <= device->info->beside_us;
	bool has_room = device_has_room(device) || (is_short && device_has_room_for_short(device));

	job->sched.beside = !has_room && may_be_beside(job);
	job->uses.beside = job->sched.beside;
	return job->sched.beside || (has_room && !(device->beside_out > 0 && uses_meet(&job->uses, true)));
}

/*
 * A long job that finds no room must not keep short ones from a device that computes them beside the runs in
 * flight. They are so few that they do not keep it from its room later.
 */
static struct job *short_instead_of(const struct job *job)
{
	const struct engine *e = job->engine;
	const struct device *device = job_device(job)->device;
	struct sched_job *instead;

	if (e->suspect || !device_has_room_for_short(device) || device->runs_out >= device->info->depth)
		return NULL;
	instead = sched_instead(&e->sched, &job->sched, device->info->beside_us);
	return instead ? job_of_sched(instead) : NULL;
}

/* For sched_next(). */
static struct sched_job *choose_job(struct sched_job *next)
{
	struct job *job = job_of_sched(next);
	struct engine *e = job->engine;

	if (e->suspect && e->suspect->sched.device == next->device)
		job = e->suspect; /* it was chosen before */
	if (!take_place(job)) {
		job = short_instead_of(job);
		if (!job || !take_place(job))
			return NULL;
	}
	if (has_to_wait(e, job))
		return NULL;
	if (job->state != JOB_PAUSED)
		job = job_admit(e, job);
	return job ? &job->sched : NULL;
}

/* Returns true if it started or ended a job. */
static bool dispatch_one(struct engine *e, unsigned index)
{
	unsigned waiting = e->sched.devices[index].waiting;
	struct sched_job *next;

	if (device_is_full(e->devices[index].device))
		return false;
	next = sched_next(&e->sched, index, choose_job);
	if (next)
		job_start(job_of_sched(next));
	return e->sched.devices[index].waiting < waiting;
}

static void dispatch_to(struct engine *e, unsigned index)
{
	while (e->sched.devices[index].waiting && dispatch_one(e, index))
		;
	device_gives_way(e, index);
}

static void dispatch_all(struct engine *e, bool others_first)
{
	e->others_first = others_first;
	for (unsigned i = 0; i < e->n_devices; i++)
		dispatch_to(e, i);
}

/* If a suspect ends at its start, devices that waited for it choose again. */
void jobs_dispatch(struct engine *e)
{
	const struct job *suspect;

	do {
		suspect = e->suspect;
		e->suspect_waits = false;
		dispatch_all(e, true);
		if (e->suspect_waits)
			dispatch_all(e, false);
	} while (suspect && e->suspect != suspect);
}
