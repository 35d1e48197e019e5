#include "dispatch/withdraw.h"

#include "dispatch/dispatch.h"
#include "dispatch/pause.h"
#include "job/finish.h"
#include "job/spread.h"

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

/* ---- Tiles ---- */

static void tile_abandoned(struct device_work *work)
{
	struct spread *spread = container_of(work, struct tile, work)->spread;
	struct engine *e = spread->job->engine;

	if (--spread->n_away > 0)
		return;
	job_end_paused(spread->job);
	jobs_dispatch(e);
}

static void abandon_tile(struct device_work *work, const struct driver *driver, struct device_state *dev)
{
	driver->abandon(dev, &container_of(work, struct tile, work)->run);
}

/* Has each owner forget what it keeps of an unfinished tile. */
static void abandon_tiles(struct job *job)
{
	struct spread *spread = job->spread;

	for (unsigned i = 0; i < spread->n_tiles && job_device(job)->device->driver->abandon; i++) {
		struct tile *tile = &spread->tiles[i];

		if (tile_has_ended(tile))
			continue;
		spread->n_away++;
		tile->work = (struct device_work){.execute = abandon_tile, .done = tile_abandoned};
		device_submit(job->engine->devices[tile->owner].device, &tile->work);
	}
	if (spread->n_away == 0)
		job_end_paused(job);
}

/* ---- Jobs ---- */

void job_abandon(struct job *job)
{
	struct device *device = job_device(job)->device;

	job_no_longer_alone(job);
	sched_remove(&job->engine->sched, &job->sched);
	list_remove(&job->paused);
	if (job->is_spread) {
		abandon_tiles(job);
		return;
	}
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
