#include "job/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "host_memory.h"
#include "log.h"
#include "server.h"
#include "session/reply.h"
#include "session/session.h"

/* A job that others wait for is not paused sooner: to change costs some 20 µs. */
#define SLICE_MIN_US 200.0
/* Beyond, there is no need to say when. */
#define MAX_AFTER_US 1e12

bool job_may_move(enum job_state from, enum job_state to)
{
	static const bool allowed[JOB_CANCELLED + 1][JOB_CANCELLED + 1] = {
	    [JOB_NEW] = {[JOB_QUEUED] = true},
	    [JOB_QUEUED] = {[JOB_RUNNING] = true, [JOB_FAILED] = true, [JOB_CANCELLED] = true},
	    [JOB_RUNNING] = {[JOB_PAUSED] = true, [JOB_DONE] = true, [JOB_FAILED] = true},
	    [JOB_PAUSED] = {[JOB_RUNNING] = true, [JOB_CANCELLED] = true},
	};
	return allowed[from][to];
}

static void move(struct job *job, enum job_state to)
{
	if (!job_may_move(job->state, to)) {
		log_error("job %" PRIu64 ": move %d to %d is not allowed; this is a bug in kopsd", job->id,
		          job->state, to);
		__builtin_trap();
	}
	job->state = to;
}

struct job *job_new(struct server *server, struct session *session, uint64_t id, unsigned n_ops)
{
	size_t ops_bytes = n_ops * sizeof(struct run_op);
	struct job *job = calloc(1, sizeof *job + ops_bytes + n_ops * OP_VIEWS_MAX * sizeof(struct job_buffer));

	if (!job)
		return NULL;
	job->server = server;
	job->session = session;
	job->account = session->account;
	account_ref(job->account);
	job->id = id;
	job->run.ops = job->ops;
	job->run.n_ops = n_ops;
	job->buffers = (struct job_buffer *)((char *)job->ops + ops_bytes);
	return job;
}

void job_free(struct job *job)
{
	for (unsigned i = 0; i < job->n_buffers; i++)
		buffer_unref(job->buffers[i].buffer);
	account_unref(&job->server->accounts, job->account);
	free(job);
}

struct job_buffer *job_use(struct job *job, struct buffer *buffer)
{
	struct job_buffer *use;

	for (unsigned i = 0; i < job->n_buffers; i++)
		if (job->buffers[i].buffer == buffer)
			return &job->buffers[i];
	use = &job->buffers[job->n_buffers++];
	use->buffer = buffer;
	buffer_ref(buffer);
	return use;
}

/* ---- Deadlines ---- */

static void expiring_add(struct job *job)
{
	struct server *server = job->server;

	job->prev_expiring = &server->expiring;
	job->next_expiring = server->expiring;
	if (job->next_expiring)
		job->next_expiring->prev_expiring = &job->next_expiring;
	server->expiring = job;
}

static void expiring_remove(struct job *job)
{
	if (!job->prev_expiring)
		return;
	*job->prev_expiring = job->next_expiring;
	if (job->next_expiring)
		job->next_expiring->prev_expiring = job->prev_expiring;
	job->prev_expiring = NULL;
}

static void on_deadline(uv_timer_t *timer)
{
	struct server *server = timer->data;

	jobs_expire(server);
	jobs_dispatch(server);
}

void jobs_expire(struct server *server)
{
	uint64_t now = clock_ns(), earliest = UINT64_MAX;
	struct job *job, *next;

	for (job = server->expiring; job; job = next) {
		next = job->next_expiring;
		if (job->deadline_ns <= now)
			job_end_queued(job, JOB_FAILED, KOPS_E_DEADLINE, NULL);
		else if (job->deadline_ns < earliest)
			earliest = job->deadline_ns;
	}
	if (earliest == UINT64_MAX)
		uv_timer_stop(&server->deadline_timer);
	else
		uv_timer_start(&server->deadline_timer, on_deadline, (earliest - now + 999999) / 1000000, 0);
}

/* ---- Queues ---- */

static struct session_queue *queue_get(struct session *session, uint32_t id)
{
	struct session_queue *q = idmap_get(&session->queues, id);

	if (q)
		return q;
	q = calloc(1, sizeof *q);
	if (!q || idmap_put(&session->queues, id, q) < 0) {
		free(q);
		return NULL;
	}
	q->session = session;
	q->id = id;
	q->sched.flow = &session->account->flow;
	q->sched.lane = session->server->next_lane++;
	return q;
}

static void queue_leave(struct sched_queue *sched)
{
	struct session_queue *q =
	    (struct session_queue *)((char *)sched - offsetof(struct session_queue, sched));

	if (--q->jobs)
		return;
	if (q->session)
		idmap_remove(&q->session->queues, q->id);
	free(q);
}

/* ---- Ends ---- */

/* The content of a RESIDENT buffer that this job would have restored is still lost. */
static void undo_fills(struct job *job)
{
	for (unsigned i = 0; i < job->n_buffers; i++)
		if (job->buffers[i].was_lost)
			job->buffers[i].buffer->lost = true;
}

static void answer(struct job *job, int status, const char *why)
{
	if (!job->session)
		return;
	idmap_remove(&job->session->jobs, job->id);
	if (job->state == JOB_DONE)
		reply_receipt(job);
	else
		reply_error(job->session, job->id, status, why, 0);
}

static void begin_trial(struct job *job)
{
	struct autotune *autotune = job->server->autotune[job->sched.device];

	if (autotune && job->n_alike > 0 && autotune_begin(autotune, &job->run, &job->trial))
		job->run.timed = true;
}

static double took_us(const struct run *run)
{
	return run->upload_us + run->compute_us + run->download_us;
}

static void end_trial(struct job *job, enum job_state state)
{
	struct autotune *autotune = job->server->autotune[job->sched.device];

	if (!autotune || !job->trial.op)
		return;
	if (job->started_ns)
		autotune_end(autotune, &job->trial, state == JOB_DONE ? took_us(&job->run) : 0);
	else
		autotune_cancel(autotune, &job->trial);
}

/* Out of the scheduler already; the job is gone afterwards. */
static void end(struct job *job, enum job_state state, int status, const char *why)
{
	struct server *server = job->server;

	move(job, state);
	expiring_remove(job);
	if (server->suspect == job)
		server->suspect = NULL;
	end_trial(job, state);
	queue_leave(job->sched.queue);
	job->account->jobs--;
	if (state != JOB_DONE)
		undo_fills(job);
	answer(job, status, why);
	job_free(job);
	server_progress(server);
}

void job_end_queued(struct job *job, enum job_state state, int status, const char *why)
{
	sched_remove(&job->server->sched, &job->sched);
	end(job, state, status, why);
}

static struct job *of_work(struct device_work *work)
{
	return (struct job *)((char *)work - offsetof(struct job, work));
}

static struct job *of_sched(struct sched_job *sched)
{
	return (struct job *)((char *)sched - offsetof(struct job, sched));
}

/* A device gives up what it held for the job. */
static void leave_device(struct job *job)
{
	struct server *server = job->server;

	for (unsigned i = 0; i < job->n_buffers; i++)
		if (job->buffers[i].pin)
			buffer_settle_pin(job->buffers[i].buffer);
	server->device_bytes_out[job->sched.device] -= job->run.device_bytes;
	host_memory_settle(job->claimed_bytes);
}

static void finish(struct job *job)
{
	struct server *server = job->server;
	struct device_stats *stats = device_stats(server->devices[job->sched.device]);
	int status = job->run.status;

	leave_device(job);
	marks_forgive(server->marks, job->account->uid, job->shape);
	if (status < 0)
		stats->jobs_failed++;
	else
		stats->jobs_done++;
	sched_finish(&server->sched, &job->sched);
	end(job, status < 0 ? JOB_FAILED : JOB_DONE, status, job->run.error);
}

/* ---- Pausing ---- */

static void paused_remove(struct job *job)
{
	struct job **link = &job->server->jobs_paused[job->sched.device];

	while (*link != job)
		link = &(*link)->next_paused;
	*link = job->next_paused;
}

/* Of a job in the scheduler. Its session is gone, and with it whoever waits for it. */
static void abandoned(struct device_work *work)
{
	struct job *job = of_work(work);

	leave_device(job);
	end(job, JOB_CANCELLED, KOPS_E_CANCELLED, NULL);
}

static void abandon_run(struct device_work *work, const struct backend *backend, struct backend_device *dev)
{
	if (backend->abandon)
		backend->abandon(dev, &of_work(work)->run);
}

static void abandon(struct job *job)
{
	sched_remove(&job->server->sched, &job->sched);
	paused_remove(job);
	job->work = (struct device_work){.execute = abandon_run, .done = abandoned};
	device_submit(job->server->devices[job->sched.device], &job->work);
}

static void pause_job(struct job *job)
{
	struct server *server = job->server;
	struct job **paused = &server->jobs_paused[job->sched.device];

	move(job, JOB_PAUSED);
	job->next_paused = *paused;
	*paused = job;
	sched_pause(&server->sched, &job->sched, run_left_us(&job->run));
	if (!job->session)
		abandon(job);
}

void job_orphan(struct job *job)
{
	job->session = NULL;
	if (job->state == JOB_QUEUED)
		job_end_queued(job, JOB_CANCELLED, KOPS_E_CANCELLED, NULL);
	else if (job->state == JOB_PAUSED)
		abandon(job);
}

static void run_done(struct device_work *work)
{
	struct job *job = of_work(work), **link;
	struct server *server = job->server;
	unsigned index = job->sched.device;

	if (job->run.status == KOPS_E_FAULT)
		server_device_failed(server, server->devices[index], job->run.error);
	for (link = &server->jobs_out[index]; *link != job; link = &(*link)->next_out)
		;
	*link = job->next_out;
	marks_unset(server->marks, job->account->uid, job->shape);
	job->sched.took_us = job->run.slice_us;
	if (job->run.status == 0 && !run_is_through(&job->run))
		pause_job(job);
	else
		finish(job);
	jobs_dispatch(server);
}

/* The first that was started is the one that a device which computes at once is at. */
static void ask_for_pause(struct server *server, unsigned index)
{
	const struct job *job = server->jobs_out[index];
	double after_us;

	if (!job || job == server->suspect || (job->run.n_ops == 1 && job->ops[0].cut.n_parts <= 1))
		return;
	after_us = sched_yields_after_us(&server->sched, &job->sched);
	if (after_us < SLICE_MIN_US)
		after_us = SLICE_MIN_US;
	if (after_us < MAX_AFTER_US)
		device_pause_at(server->devices[index], job->resumed_ns + (uint64_t)(after_us * 1e3));
}

/* ---- Starting ---- */

static void pin_buffers(struct device_work *work, const struct backend *backend, struct backend_device *dev)
{
	struct job *job = of_work(work);

	(void)dev;
	for (unsigned i = 0; i < job->n_buffers; i++)
		if (job->buffers[i].pin)
			buffer_pin(job->buffers[i].buffer, backend);
}

/* KOPS_E_* of a buffer that spoils the job by now, else 0. */
static int spoiled(const struct job *job, char why[WHY_BYTES])
{
	for (unsigned i = 0; i < job->n_buffers; i++) {
		const struct job_buffer *use = &job->buffers[i];
		if (use->buffer->state == BUFFER_FAILED) {
			snprintf(why, WHY_BYTES, "%s", use->buffer->why);
			return use->buffer->failure;
		}
		if (use->buffer->lost && use->reads)
			return KOPS_E_LOST;
	}
	return 0;
}

/* From here on later jobs may read what this one writes: a device keeps the order of one queue. */
static void fill_lost(struct job *job)
{
	for (unsigned i = 0; i < job->n_buffers; i++) {
		struct job_buffer *use = &job->buffers[i];
		use->was_lost = use->fills && use->buffer->lost;
		if (use->was_lost)
			use->buffer->lost = false;
	}
}

static void hand_over(struct job *job, bool pins)
{
	struct server *server = job->server;
	unsigned index = job->sched.device;
	struct job **end = &server->jobs_out[index];

	while (*end)
		end = &(*end)->next_out;
	*end = job;
	job->next_out = NULL;
	job->resumed_ns = clock_ns();
	marks_set(server->marks, job->account->uid, job->shape);
	server_watch_marks(server);
	job->work =
	    (struct device_work){.run = &job->run, .execute = pins ? pin_buffers : NULL, .done = run_done};
	device_submit(server->devices[index], &job->work);
	server_watch_runs(server);
}

static void resume(struct job *job)
{
	paused_remove(job);
	sched_start(&job->server->sched, &job->sched);
	move(job, JOB_RUNNING);
	hand_over(job, false);
}

static void start(struct job *job)
{
	struct server *server = job->server;
	struct device *device = server->devices[job->sched.device];
	bool pins = false;

	expiring_remove(job);
	sched_start(&server->sched, &job->sched);
	move(job, JOB_RUNNING);
	fill_lost(job);
	job->started_ns = clock_ns();
	server->device_bytes_out[job->sched.device] += job->run.device_bytes;
	if (device_backend(device)->pin)
		for (unsigned i = 0; i < job->n_buffers; i++)
			pins |= job->buffers[i].pin = buffer_wants_pin(job->buffers[i].buffer);
	job->run.lane = job->sched.queue->lane;
	hand_over(job, pins);
}

/*
 * Admission: staging and workspaces of what is out, and the resident buffers, must fit the device. A job that
 * does not fit beside others waits for them; one that does not fit at all is answered.
 */
static bool admit(struct server *server, struct job *job)
{
	unsigned d = job->sched.device;
	struct device *device = server->devices[d];
	uint64_t room = device_room_bytes(device), out = server->device_bytes_out[d];
	char why[WHY_BYTES];

	if (out <= room && job->run.device_bytes <= room - out)
		return true;
	if (out > 0)
		return false;
	snprintf(why, sizeof why,
	         "the job needs %" PRIu64 " bytes of %s beside its resident buffers, which hold %" PRIu64
	         " of %" PRIu64 "; drop buffers or split the job",
	         job->run.device_bytes, device_name(device), device_stats(device)->resident_bytes,
	         device_info(device)->memory_bytes);
	job_end_queued(job, JOB_FAILED, KOPS_E_NOMEM, why);
	return false;
}

/*
 * Pages that are missing from the job's shared buffers, because nobody wrote them or their owner punched holes,
 * become the daemon's when the job touches them: where memory is short they are claimed, at most those that its
 * views reach.
 */
static int claim_missing(struct job *job, char why[WHY_BYTES])
{
	uint64_t bytes = 0;

	if (buffer_memory_is_ample(job->server))
		return 0;
	for (unsigned i = 0; i < job->n_buffers; i++) {
		const struct job_buffer *use = &job->buffers[i];
		uint64_t missing = buffer_missing_bytes(use->buffer);

		bytes += missing < use->reach_bytes ? missing : use->reach_bytes;
	}
	if (bytes == 0 || host_memory_claim(bytes, why, WHY_BYTES) == 0) {
		job->claimed_bytes = bytes;
		return 0;
	}
	return KOPS_E_NOMEM;
}

static void begin(struct job *job)
{
	char why[WHY_BYTES];
	int rc = claim_missing(job, why);

	if (rc < 0)
		job_end_queued(job, JOB_FAILED, rc, why);
	else
		start(job);
}

static void start_or_end(struct server *server, struct job *job)
{
	unsigned index = job->sched.device;
	char why[WHY_BYTES] = "";
	int rc = spoiled(job, why);

	if (rc == 0 && job->deadline_ns && job->deadline_ns <= clock_ns())
		rc = KOPS_E_DEADLINE;
	if (rc < 0)
		job_end_queued(job, JOB_FAILED, rc, why);
	else if (admit(server, job))
		begin(job);
	else if (server->jobs_paused[index] && !server->jobs_out[index])
		resume(server->jobs_paused[index]); /* it has the room that this one may wait for */
}

static bool any_out(const struct server *server)
{
	for (unsigned i = 0; i < server->n_devices; i++)
		if (server->jobs_out[i])
			return true;
	return false;
}

/* A suspect runs alone: the first that is picked waits until nothing is out, and nothing else starts meanwhile.
 */
static bool has_to_wait(struct server *server, struct job *job)
{
	if (!server->suspect && job->is_suspect)
		server->suspect = job;
	return server->suspect && (server->suspect != job || any_out(server));
}

/* True when it started or ended a job. */
static bool dispatch_one(struct server *server, unsigned index)
{
	unsigned waiting = server->sched.waiting[index];
	struct sched_job *picked;
	struct job *job;

	if (!device_has_room(server->devices[index]))
		return false;
	picked = sched_pick(&server->sched, index);
	if (!picked)
		return false;
	job = of_sched(picked);
	if (server->suspect && server->suspect->sched.device == index)
		job = server->suspect; /* its turn had come */
	if (has_to_wait(server, job))
		return false;
	if (job->state == JOB_PAUSED)
		resume(job);
	else
		start_or_end(server, job);
	return server->sched.waiting[index] < waiting;
}

void jobs_dispatch(struct server *server)
{
	for (unsigned i = 0; i < server->n_devices; i++) {
		while (dispatch_one(server, i))
			;
		ask_for_pause(server, i);
	}
}

static bool has_pending(const struct job *job)
{
	for (unsigned i = 0; i < job->n_buffers; i++)
		if (job->buffers[i].buffer->state == BUFFER_PENDING)
			return true;
	return false;
}

int job_submit(struct job *job, unsigned index, uint32_t queue)
{
	struct server *server = job->server;
	struct session_queue *q = queue_get(job->session, queue);

	if (!q)
		return KOPS_E_NOMEM;
	if (idmap_put(&job->session->jobs, job->id, job) < 0) {
		q->jobs++;
		queue_leave(&q->sched);
		return KOPS_E_NOMEM;
	}
	q->jobs++;
	job->account->jobs++;
	job->sched.device = index;
	job->sched.cost_us = job->run.plan_us;
	job->sched.blocked = has_pending(job);
	begin_trial(job);
	move(job, JOB_QUEUED);
	sched_add(&server->sched, &q->sched, &job->sched);
	if (job->deadline_ns) {
		expiring_add(job);
		jobs_expire(server);
	}
	jobs_dispatch(server);
	return 0;
}

bool jobs_mark_lasting(struct server *server)
{
	uint64_t now = clock_ns();

	for (unsigned i = 0; i < server->n_devices; i++)
		for (const struct job *job = server->jobs_out[i]; job; job = job->next_out)
			if (now - job->started_ns >= MARKS_LASTING_MS * 1000000ull)
				marks_set_lasting(server->marks, job->account->uid, job->shape);
	return any_out(server);
}

/* ---- All queued jobs ---- */

/* Calls fn for each waiting job; fn may take that job out. */
static void each_waiting(struct server *server, void (*fn)(struct job *job))
{
	struct sched_flow *f, *next_flow;
	struct sched_queue *q, *next_queue;
	struct sched_job *j, *next_job;

	for (f = server->sched.flows; f; f = next_flow) {
		next_flow = f->next;
		for (q = f->queues; q; q = next_queue) {
			next_queue = q->next;
			for (j = q->head; j; j = next_job) {
				next_job = j->next;
				fn(of_sched(j));
			}
		}
	}
}

static void unblock(struct job *job)
{
	if (job->sched.blocked)
		job->sched.blocked = has_pending(job);
}

void jobs_buffer_settled(struct buffer *buffer)
{
	each_waiting(buffer->server, unblock);
	jobs_dispatch(buffer->server);
}

/* One that is paused counts as running. */
static void shut_down(struct job *job)
{
	if (job->state == JOB_QUEUED)
		job_end_queued(job, JOB_FAILED, KOPS_E_SHUTDOWN, NULL);
}

void jobs_shut_down(struct server *server)
{
	each_waiting(server, shut_down);
}
