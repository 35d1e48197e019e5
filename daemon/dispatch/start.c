#include "dispatch/start.h"

#include "base/clock.h"
#include "dispatch/lasting.h"
#include "dispatch/room.h"
#include "dispatch/tiles.h"
#include "job/prepared.h"

/* The loop may run a job itself, in its user's turn, if its last runs took no longer. */
#define NOW_MAX_US 20.0
/* The most memory that a job run by the loop may touch: if pages were taken away, each costs a microsecond.
 * Files must be small too, because touching a page waits while the file's owner punches a hole there, 0.3 s for
 * 4 GiB. */
#define NOW_MAX_BYTES      (128u << 10)
#define NOW_MAX_FILE_BYTES (1u << 20)

static bool touches_little(const struct uses *uses)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < uses->n; i++) {
		if (uses->list[i].buffer->of->file_bytes > NOW_MAX_FILE_BYTES)
			return false;
		bytes += uses->list[i].reach_bytes;
	}
	return bytes <= NOW_MAX_BYTES;
}

/*
 * Returns true if the loop should run the job itself. It must be short, as its last runs showed. The loop's
 * time must be its user's, and no page of it may be on a disk.
 */
static bool is_for_now(const struct job *job)
{
	const struct engine *e = job->engine;
	const struct prepared *p = job->prepared;

	return p && p->took.n > 0 && (double)p->took.us <= NOW_MAX_US && !job->work.execute && !e->runs_now &&
	       !e->can_swap && turns_pays(e->accounts.turns, &job->account->turns) &&
	       touches_little(&job->uses);
}

/* Jobs that this one makes room for are handed over. Otherwise the recursion would be as deep as the queue is
 * long. */
static bool run_now(struct job *job)
{
	struct engine *e = job->engine;
	bool done;

	e->runs_now = true;
	done = device_run_now(job_device(job)->device, &job->work);
	e->runs_now = false;
	return done;
}

/* A device that takes jobs in slices gives a job back although nobody waits: that is no pause. */
static void note_pause(struct job *job, const struct engine_device *device, uint64_t now)
{
	if (device->starts == job->starts_before)
		return;
	job->pauses++;
	job->paused_us += clock_us(job->paused_ns, now);
}

void job_start(struct job *job)
{
	struct engine *e = job->engine;
	struct engine_device *device = job_device(job);
	uint64_t now = clock_ns();

	if (job->state == JOB_PAUSED) {
		list_remove(&job->paused);
		note_pause(job, device, now);
	}
	device->starts++;
	job_move(job, JOB_RUNNING);
	list_push_last(&device->out, &job->out);
	job->work.beside = job->sched.beside;
	recent_users_note(&device->users, job->account->uid, now);
	job->run.room = job->run.timed ? RUN_KEEPS_ALL : room_for(&device->users, job->run.plan_us, now);
	job->resumed_ns = now;
	job->began_alone = device->device->runs_out == 0;
	if (!job->started_ns)
		job->started_ns = job->resumed_ns;
	marks_set(e->marks, job->account->uid, job->shape);
	if (job_is_lasting(job, job->resumed_ns))
		marks_set_lasting(e->marks, job->account->uid, job->shape);
	if (job->is_spread)
		tiles_start(job);
	else if (is_for_now(job) && run_now(job))
		return;
	else
		device_submit(device->device, &job->work);
	lasting_watch(e);
	e->watch_runs(e);
}
