#include "job/admit.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/timers.h"
#include "host_memory.h"
#include "job/finish.h"
#include "job/prepared.h"

/* A run that took no longer when it ran before may be run by the loop itself, in its user's turn. */
#define NOW_MAX_US 20.0
/* And may touch so much memory: where pages were taken away since, each takes a microsecond. Who touches a page
 * waits while its owner takes any away with it, so files must be small too: of 4 GiB that takes 0.3 s. */
#define NOW_MAX_BYTES      (128u << 10)
#define NOW_MAX_FILE_BYTES (1u << 20)
#define EXPIRE_STEP        16u /* jobs whose deadline is looked at in one step */
/* Beyond, there is no need to say when. */
#define MAX_AFTER_US 1e12

/* ---- Out ---- */

static void out_push(struct engine_device *device, struct job *job)
{
	job->prev_out = device->out ? device->out_end : &device->out;
	job->next_out = NULL;
	*job->prev_out = job;
	device->out_end = &job->next_out;
}

static void out_remove(struct engine_device *device, struct job *job)
{
	*job->prev_out = job->next_out;
	if (job->next_out)
		job->next_out->prev_out = job->prev_out;
	else
		device->out_end = job->prev_out;
}

/* ---- Pausing ---- */

static void paused_remove(struct job *job)
{
	struct job **link = &job_device(job)->paused;

	while (*link != job)
		link = &(*link)->next_paused;
	*link = job->next_paused;
}

static void abandoned(struct device_work *work)
{
	struct job *job = job_of_work(work);
	struct engine *e = job->engine;

	job_end_paused(job);
	jobs_dispatch(e); /* others may have waited for its memory */
}

static void abandon_run(struct device_work *work, const struct backend *backend, struct backend_device *dev)
{
	backend->abandon(dev, &job_of_work(work)->run);
}

/* Ends a PAUSED job that is withdrawn: at once, unless its device has to forget it first. */
static void abandon(struct job *job)
{
	struct device *device = job_device(job)->device;

	job_no_longer_alone(job);
	sched_remove(&job->engine->sched, &job->sched);
	paused_remove(job);
	if (!device->backend->abandon) {
		job_end_paused(job);
		return;
	}
	job->work = (struct device_work){.execute = abandon_run, .done = abandoned};
	device_submit(device, &job->work);
}

static void pause_job(struct job *job)
{
	struct engine *e = job->engine;
	struct job **paused = &job_device(job)->paused;

	job_move(job, JOB_PAUSED);
	job_no_longer_alone(job);
	job->work.execute = NULL; /* what it pins is pinned */
	job->next_paused = *paused;
	*paused = job;
	sched_pause(&e->sched, &job->sched, run_left_us(&job->run));
	if (job->is_withdrawn)
		abandon(job);
}

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
static void ask_for_pause(struct engine *e, unsigned index)
{
	const struct job *job = e->devices[index].out;
	double after_us;

	if (!job || !job->sched.may_pause)
		return;
	after_us = gives_way_after_us(e, job);
	if (after_us < MAX_AFTER_US)
		device_pause_at(e->devices[index].device, job->resumed_ns + (uint64_t)(after_us * 1e3));
}

/* Where its device is at another job now, it is asked for the pause when it has come to this one. */
bool job_withdraw(struct job *job)
{
	bool is_abandoned = job->is_withdrawn && job->state == JOB_PAUSED;

	job->is_withdrawn = true;
	if (job->state == JOB_RUNNING && !job->sched.may_pause)
		return false;
	if (job->state == JOB_QUEUED)
		job_end_queued(job, JOB_CANCELLED, KOPS_E_CANCELLED, NULL);
	else if (job->state == JOB_RUNNING)
		ask_for_pause(job->engine, job->sched.device);
	else if (!is_abandoned)
		abandon(job);
	return true;
}

void job_orphan(struct job *job)
{
	job->answer = NULL;
	job->session = NULL;
	job->usage = NULL;
	job_withdraw(job);
}

/*
 * For how long it kept the device from others. Where runs overlap that is what it took. Where the device has
 * one at a time, handing over the shortest runs and noticing their end takes many times as long as they do: a
 * user of such runs would get nearly all of it.
 */
static double kept_us(struct engine_device *device, const struct job *job, uint64_t now)
{
	uint64_t since = job->resumed_ns > device->freed_ns ? job->resumed_ns : device->freed_ns;

	if (device_can_hang(device->device))
		return job->run.slice_us;
	device->freed_ns = now;
	return fmax(job->run.slice_us, clock_us(since, now));
}

static void run_done(struct device_work *work)
{
	struct job *job = job_of_work(work);
	struct engine *e = job->engine;
	struct engine_device *device = job_device(job);
	bool pauses = job->run.status == 0 && !run_is_through(&job->run);

	if (job->run.status == KOPS_E_FAULT)
		e->device_failed(e, device->device, job->run.error);
	if (!pauses)
		job_answer(job);
	out_remove(device, job);
	marks_unset(e->marks, job->account->uid, job->shape, !pauses);
	job->sched.took_us = kept_us(device, job, pauses ? clock_ns() : job->ended_ns);
	job->account->usage.device_us += job->run.slice_us;
	if (job->usage)
		job->usage->device_us += job->run.slice_us;
	if (pauses)
		pause_job(job);
	else
		job_finish(job);
	jobs_dispatch(e);
}

/* ---- Jobs that are at work for long: their marks (marks.h), and what is left of them ---- */

static bool is_lasting(const struct job *job, uint64_t now)
{
	return now - job->started_ns >= MARKS_LASTING_MS * 1000000ull;
}

static void note_lasting(struct job *job, uint64_t now)
{
	double left_us = job->sched.cost_us - clock_us(job->resumed_ns, now);

	sched_progress(&job->engine->sched, &job->sched, fmax(left_us, 0));
	if (is_lasting(job, now))
		marks_set_lasting(job->engine->marks, job->account->uid, job->shape);
}

/* Stops by itself when nothing is out: an idle daemon wakes up for nothing. */
static void on_lasting(uv_timer_t *timer)
{
	struct engine *e = timer->data;
	uint64_t now = clock_ns();

	for (unsigned i = 0; i < e->n_devices; i++)
		for (struct job *job = e->devices[i].out; job; job = job->next_out)
			note_lasting(job, now);
	if (!engine_has_jobs_out(e))
		uv_timer_stop(timer);
}

static void watch_lasting(struct engine *e)
{
	if (!uv_is_active((uv_handle_t *)&e->lasting_timer))
		timers_start(&e->lasting_timer, on_lasting, MARKS_LASTING_MS, MARKS_LASTING_MS);
}

/* ---- Starting ---- */

static void pin_buffers(struct device_work *work, const struct backend *backend, struct backend_device *dev)
{
	(void)dev;
	uses_pin(&job_of_work(work)->uses, backend);
}

static bool touches_little(const struct uses *uses)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < uses->n; i++) {
		if (buffer_file_bytes(uses->list[i].buffer) > NOW_MAX_FILE_BYTES)
			return false;
		bytes += uses->list[i].reach_bytes;
	}
	return bytes <= NOW_MAX_BYTES;
}

/*
 * Whether the loop should run it, rather than hand it over: it is short, as its last runs showed, its user has
 * the loop's time just now, and no page of it can have gone to a disk.
 */
static bool is_for_now(const struct job *job)
{
	const struct engine *e = job->engine;
	const struct prepared *p = job->prepared;

	return p && p->took_us > 0 && p->took_us <= NOW_MAX_US && !job->work.execute && !e->runs_now &&
	       !e->can_swap && turns_pays(e->accounts.turns, &job->account->turns) &&
	       touches_little(&job->uses);
}

/* What it makes room for is handed over, or this would be as deep as the queue is long. */
static bool run_now(struct job *job)
{
	struct engine *e = job->engine;
	bool done;

	e->runs_now = true;
	done = device_run_now(job_device(job)->device, &job->work);
	e->runs_now = false;
	return done;
}

/* A job that the scheduler has started. */
static void hand_over(struct job *job)
{
	struct engine *e = job->engine;
	struct engine_device *device = job_device(job);

	if (job->state == JOB_PAUSED)
		paused_remove(job);
	job_move(job, JOB_RUNNING);
	out_push(device, job);
	job->resumed_ns = clock_ns();
	if (!job->started_ns)
		job->started_ns = job->resumed_ns;
	marks_set(e->marks, job->account->uid, job->shape);
	if (is_lasting(job, job->resumed_ns))
		marks_set_lasting(e->marks, job->account->uid, job->shape);
	if (is_for_now(job) && run_now(job))
		return;
	device_submit(device->device, &job->work);
	watch_lasting(e);
	e->watch_runs(e);
}

/* ---- Which job starts ---- */

/* Gives it what it starts with. Or ends it, where a buffer or a want of memory keeps it from running: false. */
static bool equip(struct job *job)
{
	struct engine_device *device = job_device(job);
	char why[WHY_BYTES] = "";
	bool pins;
	int rc = uses_start(&job->uses, job->engine, device->device->backend->pin, &pins, why);

	if (rc < 0) {
		job_end_queued(job, JOB_FAILED, rc, why);
		return false;
	}
	if (job->deadline_ns)
		job_expires_not(job);
	device->bytes_out += job->run.device_bytes;
	job->run.lane = job->sched.queue->lane;
	job->work =
	    (struct device_work){.run = &job->run, .execute = pins ? pin_buffers : NULL, .done = run_done};
	return true;
}

/*
 * Admission: staging and workspaces of what is out, and the resident buffers, must fit the device. A job that
 * does not fit beside others waits for them; one that does not fit at all is answered.
 */
static bool admit(struct engine *e, struct job *job)
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
	         "the job needs %" PRIu64 " bytes of %s beside its resident buffers, which hold %" PRIu64
	         " of %" PRIu64 "; drop buffers or split the job",
	         job->run.device_bytes, device->name, device->stats.resident_bytes, device->info->memory_bytes);
	job_end_queued(job, JOB_FAILED, KOPS_E_NOMEM, why);
	return false;
}

/* Those that started while memory was ample claim too: it is theirs before it is promised to others. */
static void memory_is_short(struct engine *e)
{
	for (unsigned i = 0; i < e->n_devices; i++) {
		bool pins = e->devices[i].device->backend->pin;

		for (struct job *job = e->devices[i].out; job; job = job->next_out)
			uses_claim(&job->uses, pins);
		for (struct job *job = e->devices[i].paused; job; job = job->next_paused)
			uses_claim(&job->uses, pins);
	}
}

/* A queued job that is next, equipped; or a paused one that goes before it; or NULL. It may end instead. */
static struct job *admitted(struct engine *e, struct job *job)
{
	const struct engine_device *device = job_device(job);

	if (job->deadline_ns && job->deadline_ns <= clock_ns())
		job_end_queued(job, JOB_FAILED, KOPS_E_DEADLINE, NULL);
	else if (admit(e, job))
		return equip(job) ? job : NULL;
	else if (device->paused && !device->out)
		return device->paused; /* it has the room that this one may wait for */
	return NULL;
}

/* A suspect runs alone: the first that is next waits until nothing is out, and nothing starts until it is back,
 * paused or at its end. Before, other devices have their turns. */
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

/* For sched_next(). */
static struct sched_job *choose(struct sched_job *next)
{
	struct job *job = job_of_sched(next);
	struct engine *e = job->engine;

	if (e->suspect && e->suspect->sched.device == next->device)
		job = e->suspect; /* its turn had come */
	if (has_to_wait(e, job))
		return NULL;
	if (job->state != JOB_PAUSED)
		job = admitted(e, job);
	return job ? &job->sched : NULL;
}

/* True when it started or ended a job. */
static bool dispatch_one(struct engine *e, unsigned index)
{
	unsigned waiting = e->sched.devices[index].waiting;
	struct sched_job *next;

	if (!device_has_room(e->devices[index].device))
		return false;
	next = sched_next(&e->sched, index, choose);
	if (next)
		hand_over(job_of_sched(next));
	return e->sched.devices[index].waiting < waiting;
}

static void dispatch(struct engine *e, unsigned index)
{
	while (e->sched.devices[index].waiting && dispatch_one(e, index))
		;
	ask_for_pause(e, index);
}

static void dispatch_all(struct engine *e, bool others_first)
{
	e->others_first = others_first;
	for (unsigned i = 0; i < e->n_devices; i++)
		dispatch(e, i);
}

/* Where a suspect ends at its start, devices that waited for it have their turns once more. */
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

/* ---- Deadlines ---- */

static void on_deadline(uv_timer_t *timer);

static void expire_at(struct engine *e, uint64_t deadline_ns)
{
	uint64_t now = clock_ns(), left_ns = deadline_ns > now ? deadline_ns - now : 0;

	e->expires_ns = deadline_ns;
	timers_start(&e->deadline_timer, on_deadline, (left_ns + 999999) / 1000000, 0);
}

/* Ends those whose deadline has passed, a few in each step: each is answered, and thousands may have one
 * deadline. */
static bool expire_step(struct errand *errand)
{
	struct engine *e = (struct engine *)((char *)errand - offsetof(struct engine, expiry));
	uint64_t now = clock_ns();
	struct job *job;

	for (unsigned n = 0; n < EXPIRE_STEP && (job = e->expires_next); n++) {
		e->expires_next = job->next_expiring;
		if (job->deadline_ns <= now)
			job_end_queued(job, JOB_FAILED, KOPS_E_DEADLINE, NULL);
		else
			e->earliest_ns = job->deadline_ns < e->earliest_ns ? job->deadline_ns : e->earliest_ns;
	}
	if (e->expires_next)
		return true;
	e->expires_ns = 0;
	if (e->earliest_ns < UINT64_MAX)
		expire_at(e, e->earliest_ns);
	jobs_dispatch(e);
	return false;
}

static void on_deadline(uv_timer_t *timer)
{
	struct engine *e = timer->data;

	if (e->expiry.step)
		return;
	e->expires_next = e->expiring;
	e->earliest_ns = UINT64_MAX;
	errands_add(&e->accounts.errands, &e->expiry, expire_step);
}

static void init_timer(struct engine *e, uv_timer_t *timer)
{
	uv_timer_init(e->timers, timer);
	timer->data = e;
}

void jobs_init(struct engine *e)
{
	init_timer(e, &e->deadline_timer);
	init_timer(e, &e->lasting_timer);
	e->memory_is_short = memory_is_short;
}

/* ---- Submitting ---- */

/* Where it waited for a buffer, which may be there by now. */
static void unblock(struct sched_job *sched)
{
	struct job *job = job_of_sched(sched);

	if (job->sched.blocked && !uses_are_pending(&job->uses))
		sched_unblock(&job->engine->sched, &job->sched);
}

static void begin_trial(struct job *job)
{
	struct learned *learned = job_device(job)->learned;

	job->settled = true;
	if (learned && job->n_alike > 0 && learned_begin(learned, &job->run, &job->trial, &job->settled))
		job->run.timed = true;
}

void job_submit(struct job *job)
{
	struct engine *e = job->engine;

	job->account->jobs++;
	job->sched.cost_us = job->run.plan_us;
	job->sched.blocked = job->sched.blocked && uses_are_pending(&job->uses);
	begin_trial(job);
	job->sched.may_pause = device_may_pause(job_device(job)->device, &job->run);
	job_move(job, JOB_QUEUED);
	sched_add(&e->sched, job->sched.queue, &job->sched);
	if (job->deadline_ns) {
		job_expires(job);
		e->earliest_ns = job->deadline_ns < e->earliest_ns ? job->deadline_ns : e->earliest_ns;
		if (!e->expires_ns || job->deadline_ns < e->expires_ns)
			expire_at(e, job->deadline_ns);
	}
	jobs_dispatch(e);
}

/* ---- All queued jobs ---- */

void jobs_unblock(struct engine *e)
{
	if (e->sched.blocked > 0)
		sched_each_waiting(&e->sched, unblock);
	jobs_dispatch(e);
}

/* One that is paused counts as running. */
static void shut_down(struct sched_job *sched)
{
	struct job *job = job_of_sched(sched);

	if (job->state == JOB_QUEUED)
		job_end_queued(job, JOB_FAILED, KOPS_E_SHUTDOWN, NULL);
}

void jobs_shut_down(struct engine *e)
{
	sched_each_waiting(&e->sched, shut_down);
}
