#include "dispatch/admit.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "dispatch/tiles.h"
#include "job/finish.h"

static void pin_buffers(struct device_work *work, const struct driver *driver, struct device_state *dev)
{
	(void)dev;
	uses_pin(&job_of_work(work)->uses, driver);
}

/* Gives the job its buffers and memory. Returns false if the job ended instead, because a buffer or memory is
 * missing. */
static bool equip(struct job *job)
{
	struct engine_device *device = job_device(job);
	char why[WHY_BYTES] = "";
	bool pins;
	int rc = uses_start(&job->uses, job->engine, device->device->driver->pin, &pins, why);

	if (rc < 0) {
		job_end_queued(job, JOB_FAILED, rc, why);
		return false;
	}
	if (job->deadline_ns)
		job_expires_not(job);
	device->bytes_out += job->run.device_bytes;
	job->run.lane = job->sched.queue->lane;
	job->work.run = &job->run;
	job->work.execute = pins ? pin_buffers : NULL;
	tiles_prepare(job);
	return true;
}

/*
 * Staging and workspaces of runs out, and resident buffers, must fit the device. A job that does not fit beside
 * others waits for them; one that can never fit is answered.
 */
static bool fits_device(struct engine *e, struct job *job)
{
	unsigned d = job->sched.device;
	struct device *device = e->devices[d].device;
	uint64_t room = device_room_bytes(device), out = e->devices[d].bytes_out;
	char why[WHY_BYTES];

	if (out <= room && job->run.device_bytes <= room - out)
		return true;
	if (out > 0)
		return false;
	snprintf(why, sizeof why,
	         "the job needs %" PRIu64 " bytes of %s in addition to RESIDENT buffers, which use %" PRIu64
	         " of %" PRIu64 " bytes; drop buffers or split the job",
	         job->run.device_bytes, device->name, device->stats.resident_bytes, device->info->memory_bytes);
	job_end_queued(job, JOB_FAILED, KOPS_E_NOMEM, why);
	return false;
}

/* Jobs that started while memory was ample now claim theirs, before it is promised to others. */
static void memory_is_short(struct engine *e)
{
	for (unsigned i = 0; i < e->n_devices; i++) {
		bool pins = e->devices[i].device->driver->pin;
		struct job *job;

		list_for_each (job, &e->devices[i].out, out)
			uses_claim(&job->uses, pins);
		list_for_each (job, &e->devices[i].paused, paused)
			uses_claim(&job->uses, pins);
	}
}

struct job *job_admit(struct engine *e, struct job *job)
{
	const struct engine_device *device = job_device(job);

	if (job->deadline_ns && job->deadline_ns <= clock_ns())
		job_end_queued(job, JOB_FAILED, KOPS_E_DEADLINE, NULL);
	else if (fits_device(e, job))
		return equip(job) ? job : NULL;
	else if (list_is_empty(&device->out)) /* a paused job holds the memory that this one may wait for */
		return list_first(&device->paused, struct job, paused);
	return NULL;
}

void admit_init(struct engine *e)
{
	e->memory_is_short = memory_is_short;
}
