#include "dispatch/back.h"

#include <math.h>

#include "base/clock.h"
#include "dispatch/dispatch.h"
#include "dispatch/pause.h"
#include "dispatch/withdraw.h"
#include "job/finish.h"
#include "job/spread.h"

/*
 * How long the job kept the device from others. If runs overlap, that is the time it took. If the device does
 * one run at a time, handing over and noticing the end of the shortest runs takes far longer than the runs.
 * Charged for the runs only, a user of such runs would get nearly all of the device.
 */
static double kept_us(struct engine_device *device, const struct job *job, uint64_t now)
{
	uint64_t since = job->resumed_ns > device->freed_ns ? job->resumed_ns : device->freed_ns;

	if (device_can_hang(device->device))
		return job->run.slice_us;
	device->freed_ns = now;
	return fmax(job->run.slice_us, clock_us(since, now));
}

static void note_device_time(struct job *job, double us)
{
	job->account->usage.device_us += us;
	if (job->usage)
		job->usage->device_us += us;
}

static void stop(struct job *job)
{
	job_pause(job);
	if (job->is_withdrawn)
		job_abandon(job);
}

void job_run_is_back(struct device_work *work)
{
	struct job *job = job_of_work(work);
	struct engine *e = job->engine;
	struct engine_device *device = job_device(job);
	bool pauses = job->run.status == 0 && !run_is_through(&job->run);

	if (job->run.status == KOPS_E_FAULT)
		e->device_failed(e, device->device, job->run.error);
	if (!pauses)
		job_answer(job);
	list_remove(&job->out);
	marks_unset(e->marks, job->account->uid, job->shape, !pauses);
	job->sched.took_us = kept_us(device, job, pauses ? clock_ns() : job->ended_ns);
	note_device_time(job, job->run.slice_us);
	if (!pauses)
		job_finish(job);
	else
		stop(job);
	jobs_dispatch(e);
}

static void leave_owner(struct tile *tile)
{
	struct job *job = tile->spread->job;

	tile->sched.took_us = tile->run.slice_us;
	sched_finish(&job->engine->sched, &tile->sched);
	note_device_time(job, tile->run.slice_us);
}

void job_tile_is_back(struct device_work *work)
{
	struct tile *tile = container_of(work, struct tile, work);
	struct spread *spread = tile->spread;
	struct job *job = spread->job;
	struct engine *e = job->engine;

	if (tile->run.status == KOPS_E_FAULT)
		e->device_failed(e, e->devices[tile->owner].device, tile->run.error);
	if (tile != spread->tiles)
		leave_owner(tile);
	if (--spread->n_away > 0) {
		jobs_dispatch(e); /* others may have waited for this owner */
		return;
	}
	spread_gather(spread);
	job_run_is_back(&job->work);
}
