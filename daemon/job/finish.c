#include "job/finish.h"

#include "base/clock.h"
#include "job/prepared.h"
#include "job/spread.h"

/* ---- Deadlines ---- */

void job_expires_not(struct job *job)
{
	if (!list_has(&job->expiring))
		return;
	if (job->engine->expires_next == job)
		job->engine->expires_next = list_next(job, expiring);
	list_remove(&job->expiring);
}

/* ---- Ends ---- */

static double took_us(const struct run *run)
{
	return run->upload_us + run->compute_us + run->download_us;
}

static void end_trial(struct job *job)
{
	struct learned *learned = job_device(job)->learned;

	if (!learned || !job->trial.op)
		return;
	if (job->started_ns && job->state != JOB_CANCELLED)
		learned_end(learned, &job->trial, job->state == JOB_DONE ? took_us(&job->run) : 0);
	else
		learned_cancel(learned, &job->trial);
	job->engine->learned_something(job->engine);
}

/* Runs of a kept job that are noted together, so that short ones need not look up their shape each. */
#define NOTED_TOGETHER 64u

/* Compares a run that had the device for itself with the trials of its shape. */
static void compare_with_trials(struct job *job)
{
	struct engine_device *device = job_device(job);
	bool is_slow = learned_is_slow(job->usual_us, took_us(&job->run));

	if (!device->learned || job->usual_us <= 0 || job->state != JOB_DONE || job->is_spread ||
	    !job->began_alone || device->device->runs_out > 0)
		return;
	job->unnoted++;
	if (job->prepared && !is_slow && !job->was_slow && job->unnoted < NOTED_TOGETHER)
		return;
	if (learned_note(device->learned, &job->run, is_slow, job->unnoted)) {
		job->settled = false; /* a kept job is planned anew */
		job->engine->learned_something(job->engine);
	}
	job->was_slow = is_slow;
	job->unnoted = 0;
}

/* Counts the end for its device, its user, and its session if that is still there. */
static void note_end(const struct job *job)
{
	struct device_stats *stats = &job_device(job)->device->stats;
	struct usage *const usages[] = {&job->account->usage, job->usage};

	if (job->state == JOB_DONE)
		stats->jobs_done++;
	else
		stats->jobs_failed++;
	for (unsigned i = 0; i < 2 && usages[i]; i++)
		if (job->state == JOB_DONE)
			usage_note_done(usages[i], &job->cost, job->started_ns - job->arrived_ns,
			                job->ended_ns - job->arrived_ns);
		else
			usages[i]->jobs_failed++;
}

/* Answers before the end changes other state, because the client waits. */
static void answer_client(struct job *job, enum job_state state, int status, const char *why)
{
	job->ended_ns = clock_ns();
	job_move(job, state);
	if (job->answer)
		job->answer(job, status, why);
}

/* So that the next such job does not wait for first launches. The client of this one has its answer. */
static void get_ready(const struct job *job)
{
	const struct device *device = job_device(job)->device;

	if (job->run.has_first_launches && device->driver->get_ready)
		device->driver->get_ready(device->dev, &job->run);
}

/* Ends a job that is answered and out of the scheduler. Frees it, or makes it READY. */
static void end(struct job *job)
{
	struct engine *e = job->engine;

	job_expires_not(job);
	job_no_longer_alone(job);
	end_trial(job);
	compare_with_trials(job);
	get_ready(job);
	job->account->jobs--;
	note_end(job);
	if (job->prepared)
		prepared_job_ended(job);
	else
		job_free(job);
	e->progress(e);
}

void job_end_queued(struct job *job, enum job_state state, int status, const char *why)
{
	answer_client(job, state, status, why);
	if (list_has(&job->waiting))
		list_remove(&job->waiting);
	sched_remove(&job->engine->sched, &job->sched);
	end(job);
}

/* Releases what the device held for the job. */
static void leave_device(struct job *job, bool done)
{
	job_device(job)->bytes_out -= job->run.device_bytes;
	for (unsigned i = 1; job->is_spread && i < job->spread->n_tiles; i++)
		job->engine->devices[job->spread->tiles[i].owner].bytes_out -=
		    job->spread->tiles[i].run.device_bytes;
	uses_end(&job->uses, done);
}

void job_end_paused(struct job *job)
{
	answer_client(job, JOB_CANCELLED, KOPS_E_CANCELLED, NULL);
	leave_device(job, false);
	end(job);
}

void job_answer(struct job *job)
{
	int status = job->run.status;

	answer_client(job, status < 0 ? JOB_FAILED : JOB_DONE, status, job->run.error);
}

void job_finish(struct job *job)
{
	leave_device(job, job->state == JOB_DONE);
	sched_finish(&job->engine->sched, &job->sched);
	end(job);
}
