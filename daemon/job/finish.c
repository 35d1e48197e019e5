#include "job/finish.h"

#include "clock.h"
#include "job/prepared.h"

/* ---- Deadlines ---- */

void job_expires(struct job *job)
{
	struct engine *e = job->engine;

	job->prev_expiring = &e->expiring;
	job->next_expiring = e->expiring;
	if (job->next_expiring)
		job->next_expiring->prev_expiring = &job->next_expiring;
	e->expiring = job;
}

void job_expires_not(struct job *job)
{
	if (!job->prev_expiring)
		return;
	*job->prev_expiring = job->next_expiring;
	if (job->next_expiring)
		job->next_expiring->prev_expiring = job->prev_expiring;
	job->prev_expiring = NULL;
}

/* ---- Ends ---- */

/* The content of a RESIDENT buffer that this job would have restored is still lost. */
static void undo_fills(struct job *job)
{
	for (unsigned i = 0; i < job->n_buffers; i++)
		if (job->buffers[i].was_lost)
			job->buffers[i].buffer->lost = true;
}

static double took_us(const struct run *run)
{
	return run->upload_us + run->compute_us + run->download_us;
}

static void end_trial(struct job *job, enum job_state state)
{
	struct learned *learned = job_device(job)->learned;

	if (!learned || !job->trial.op)
		return;
	if (job->started_ns)
		learned_end(learned, &job->trial, state == JOB_DONE ? took_us(&job->run) : 0);
	else
		learned_cancel(learned, &job->trial);
	job->engine->learned_something(job->engine);
}

static void note_usage(const struct job *job, struct usage *usage)
{
	if (job->state == JOB_DONE)
		usage_note_done(usage, &job->cost, job->started_ns - job->arrived_ns,
		                job->ended_ns - job->arrived_ns);
	else
		usage->jobs_failed++;
}

/* Out of the scheduler already; the job is gone afterwards, or ready again. */
static void end(struct job *job, enum job_state state, int status, const char *why)
{
	struct engine *e = job->engine;

	job->ended_ns = clock_ns();
	job_move(job, state);
	job_expires_not(job);
	if (e->suspect == job)
		e->suspect = NULL;
	end_trial(job, state);
	job->account->jobs--;
	if (state != JOB_DONE)
		undo_fills(job);
	if (job->answer)
		job->answer(job, status, why);
	note_usage(job, &job->account->usage);
	if (job->usage)
		note_usage(job, job->usage);
	if (job->prepared)
		prepared_job_ended(job);
	else
		job_free(job);
	e->progress(e);
}

void job_end_queued(struct job *job, enum job_state state, int status, const char *why)
{
	sched_remove(&job->engine->sched, &job->sched);
	end(job, state, status, why);
}

void job_settle_pages(struct job *job)
{
	for (unsigned i = 0; i < job->n_buffers; i++) {
		struct job_buffer *use = &job->buffers[i];

		if (use->claimed_bytes)
			buffer_settle_pages(use->buffer, use->claimed_bytes);
		use->claimed_bytes = 0;
	}
}

/* A device gives up what it held for the job. */
static void leave_device(struct job *job)
{
	for (unsigned i = 0; i < job->n_buffers; i++)
		if (job->buffers[i].pin)
			buffer_settle_pin(job->buffers[i].buffer);
	job_device(job)->bytes_out -= job->run.device_bytes;
	job_settle_pages(job);
}

void job_end_paused(struct job *job)
{
	leave_device(job);
	end(job, JOB_CANCELLED, KOPS_E_CANCELLED, NULL);
}

/* The CPU has their pages mapped from now on. */
static void note_reach(struct job *job)
{
	for (unsigned i = 0; i < job->n_buffers; i++) {
		struct memory *m = &job->buffers[i].buffer->memory;
		uint64_t reach_bytes = job->buffers[i].reach_bytes;

		if (m->reached_bytes < reach_bytes)
			m->reached_bytes = reach_bytes;
	}
}

void job_finish(struct job *job)
{
	struct engine *e = job->engine;
	struct device_stats *stats = &job_device(job)->device->stats;
	int status = job->run.status;

	leave_device(job);
	note_reach(job);
	marks_forgive(e->marks, job->account->uid, job->shape);
	if (status < 0)
		stats->jobs_failed++;
	else
		stats->jobs_done++;
	sched_finish(&e->sched, &job->sched);
	end(job, status < 0 ? JOB_FAILED : JOB_DONE, status, job->run.error);
}
