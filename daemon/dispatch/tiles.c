#include "dispatch/tiles.h"

#include "base/clock.h"
#include "dispatch/room.h"
#include "job/prepared.h"
#include "job/spread.h"

/* To plan tiles takes the loop up to some milliseconds, which shorter jobs are not worth; those that come again
 * keep their tiles. */
#define SPREAD_ONCE_MIN_US  20e3
#define SPREAD_AGAIN_MIN_US 2e3

/* ---- Owners ---- */

static bool is_in_host_memory(const struct op_args *args)
{
	for (unsigned v = 0; v < args->op->n_operands; v++)
		if (!view_is_absent(&args->views[v]) && !view_is_in_host_memory(&args->views[v]))
			return false;
	return true;
}

/* Earlier jobs of its queue may still be on its device, where they keep their order; a tile elsewhere would not
 * wait for them. */
static bool may_be_spread(const struct job *job)
{
	return job->has_choice && job->run.n_ops == 1 &&
	       job->run.plan_us >= (job->run.repeats ? SPREAD_AGAIN_MIN_US : SPREAD_ONCE_MIN_US) &&
	       !job->run.timed && !job->work.execute && !job->is_suspect && !job->engine->suspect &&
	       !job->sched.queue->running && device_can_hang(job_device(job)->device) &&
	       is_in_host_memory(&job->ops[0].args);
}

static bool is_idle(const struct engine *e, unsigned index)
{
	return e->devices[index].device->work_out == 0 && e->sched.devices[index].load == 0;
}

/* The job's device first. Returns their number. */
static unsigned find_owners(const struct job *job, unsigned ret[SCHED_DEVICES_MAX])
{
	const struct engine *e = job->engine;
	unsigned n = 0;

	ret[n++] = job->sched.device;
	for (unsigned i = 0; i < e->n_devices; i++)
		if (i != job->sched.device && e->devices[i].device->driver == job_device(job)->device->driver &&
		    is_idle(e, i))
			ret[n++] = i;
	return n;
}

static bool is_over(const struct spread *spread, const unsigned *owners, unsigned n)
{
	if (spread->n_tiles != n)
		return false;
	for (unsigned i = 0; i < n; i++)
		if (spread->tiles[i].owner != owners[i])
			return false;
	return true;
}

static bool has_memory(const struct spread *spread)
{
	for (unsigned i = 1; i < spread->n_tiles; i++) {
		const struct tile *tile = &spread->tiles[i];
		const struct engine_device *owner = &spread->job->engine->devices[tile->owner];

		if (owner->bytes_out + tile->run.device_bytes > device_room_bytes(owner->device))
			return false;
	}
	return true;
}

/* Keeps the tiles of the job's last run if they have the same owners. */
static bool make_tiles(struct job *job, const unsigned *owners, unsigned n)
{
	if (job->spread && is_over(job->spread, owners, n) && has_memory(job->spread))
		return true;
	if (n <= job->not_over)
		return false;
	spread_free(job->spread);
	job->spread = spread_new(job, owners, n);
	if (!job->spread)
		job->not_over = n;
	return job->spread;
}

static bool find_tiles(struct job *job)
{
	unsigned owners[SCHED_DEVICES_MAX], n;

	if (!may_be_spread(job))
		return false;
	n = find_owners(job, owners);
	return n > 1 && make_tiles(job, owners, n);
}

void tiles_prepare(struct job *job)
{
	bool was_spread = job->is_spread;

	job->is_spread = find_tiles(job);
	if (job->prepared && job->is_spread != was_spread)
		job->prepared->is_told = false; /* the receipt says how it is computed now */
	if (!job->is_spread)
		return;
	job->sched.may_pause = true; /* later jobs of its queue wait until all tiles are back */
	spread_reset(job->spread);
	for (unsigned i = 1; i < job->spread->n_tiles; i++) {
		const struct tile *tile = &job->spread->tiles[i];

		job->engine->devices[tile->owner].bytes_out += tile->run.device_bytes;
	}
}

/* ---- The start ---- */

static void enter_owner(struct tile *tile)
{
	struct job *job = tile->spread->job;

	tile->queue.flow = &job->account->flow;
	tile->sched = (struct sched_job){
	    .device = tile->owner, .priority = job->sched.priority, .cost_us = run_left_us(&tile->run)};
	sched_start_now(&job->engine->sched, &tile->queue, &tile->sched);
}

void tiles_start(struct job *job)
{
	struct engine *e = job->engine;
	struct spread *spread = job->spread;
	uint64_t now = clock_ns();

	spread_begin_exchange(spread);
	for (unsigned i = 0; i < spread->n_tiles; i++) {
		struct tile *tile = &spread->tiles[i];
		struct engine_device *owner = &e->devices[tile->owner];

		tile->run.slice_us = 0;
		if (tile_has_ended(tile))
			continue;
		spread->n_away++;
		if (i > 0)
			enter_owner(tile);
		recent_users_note(&owner->users, job->account->uid, now);
		tile->run.room = room_for(&owner->users, tile->run.plan_us, now);
		tile->work = (struct device_work){.run = &tile->run, .done = job->tile_done};
		device_submit(owner->device, &tile->work);
	}
}
