#include "session/runs.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "decode.h"
#include "dispatch/submit.h"
#include "job/plan.h"
#include "job/prepared.h"
#include "session/bind.h"
#include "session/reply.h"

/* ---- Limits ---- */

static int busy(struct request *r, double backlog_us, uint64_t limit_us, const char *what)
{
	double wait_us = backlog_us > (double)limit_us ? backlog_us - (double)limit_us : backlog_us / 16.0;

	r->retry_after_us = wait_us > 1000.0 ? (uint64_t)wait_us : 1000;
	snprintf(r->why, sizeof r->why, "%s; try again in %.0f ms", what, (double)r->retry_after_us / 1e3);
	return KOPS_E_BUSY;
}

/* Checks the backlog of the device that the job goes to. */
static int check_backlog(struct request *r, const struct job *job)
{
	const struct engine *e = r->session->engine;
	const struct config *c = e->config;
	unsigned device = job->sched.device;
	double backlog_us = e->sched.devices[device].backlog_us;

	if (!sched_is_full(&e->sched, &r->session->account->flow, device, (double)c->max_backlog * 1e3))
		return 0;
	return busy(r, backlog_us, c->max_backlog * 1000, "the device's queue is full (max-backlog)");
}

/* Returns true if all devices that the job may use are full for this user. */
static bool is_full_everywhere(const struct request *r, const char *wanted)
{
	const struct engine *e = r->session->engine;
	const struct sched_flow *flow = &r->session->account->flow;
	bool any = false;

	for (unsigned i = 0; i < e->n_devices; i++) {
		if (!device_is_meant(e->devices[i].device, wanted))
			continue;
		any = true;
		if (!sched_is_full(&e->sched, flow, i, (double)e->config->max_backlog * 1e3))
			return false;
	}
	return any;
}

/* Checks limits before the job is made. */
static int check_limits(struct request *r, const char *wanted)
{
	const struct engine *e = r->session->engine;
	const struct config *c = e->config;
	const struct account *account = r->session->account;
	double backlog_us = 0;

	for (unsigned i = 0; i < e->n_devices; i++)
		backlog_us =
		    e->sched.devices[i].backlog_us > backlog_us ? e->sched.devices[i].backlog_us : backlog_us;
	if (r->session->jobs.count >= c->max_jobs)
		return busy(r, backlog_us, UINT64_MAX,
		            "the limit of unanswered jobs of this session is reached (max-jobs)");
	if (account->jobs >= account->limits.max_jobs_per_uid)
		return busy(r, backlog_us, UINT64_MAX,
		            "the limit of unanswered jobs of this user is reached (max-jobs-per-uid)");
	if (is_full_everywhere(r, wanted))
		return busy(r, backlog_us, c->max_backlog * 1000, "the device's queue is full (max-backlog)");
	return 0;
}

/* Checks a request before any work. wanted: the device it asks for, "" for any. */
static int check(struct request *r, const char *wanted)
{
	if (r->session->all->stopping) {
		snprintf(r->why, sizeof r->why, "kopsd is stopping; connect again to reach its successor");
		return KOPS_E_SHUTDOWN;
	}
	if (idmap_get(&r->session->jobs, r->id)) {
		snprintf(r->why, sizeof r->why, "request id %" PRIu64 " is in use by an unanswered job", r->id);
		return KOPS_E_EXISTS;
	}
	return check_limits(r, wanted);
}

/* ---- In and out ---- */

static void trace(const struct job *job, int status)
{
	const struct session *s = job->session;
	const struct run *run = &job->run;
	const struct kernel *kernel = job->ops[0].kernel;

	*trace_next(&s->all->trace) = (struct trace_entry){
	    .session = s->serial,
	    .job = job->id,
	    .ended_ns = job->ended_ns,
	    .device = job_device(job)->device->name,
	    .op = job->ops[0].args.op->name,
	    .kernel = kernel ? kernel->name : "",
	    .shape = job->ops[0].shape,
	    .cost = job->cost,
	    .queue_us = clock_us(job->arrived_ns, job->started_ns ? job->started_ns : job->ended_ns),
	    .upload_us = run->upload_us,
	    .compute_us = run->compute_us,
	    .download_us = run->download_us,
	    .total_us = clock_us(job->arrived_ns, job->ended_ns),
	    .uid = s->account->uid,
	    .pid = s->pid,
	    .status = (int16_t)status,
	    .n_ops = (uint8_t)run->n_ops,
	    .prepared = job->prepared != NULL,
	    .graph = status == 0 && run->as_graph,
	    .by_ring = job->by_ring,
	};
}

static void reply(const struct job *job, int status, const char *why)
{
	if (job->by_ring && job->state == JOB_DONE && reply_by_ring(job))
		return;
	if (job->by_ring)
		ring_release(job->session->ring);
	if (job->state == JOB_DONE)
		reply_receipt(job);
	else
		reply_error(job->session, job->id, status, why, 0);
}

/* Called when a job ends and its session still exists. */
static void answer_job(struct job *job, int status, const char *why)
{
	reply(job, status, why);
	idmap_remove(&job->session->jobs, job->id);
	trace(job, status);
}

/*
 * Adds the planned job to the session under the request's id; it is answered when it ends. deadline_us: from
 * now; 0: none.
 */
static int enter_job(struct request *r, struct job *job, uint64_t deadline_us)
{
	uint64_t deadline_ns;
	int rc = check_backlog(r, job);

	if (rc == 0)
		rc = idmap_put(&r->session->jobs, r->id, job);
	if (rc < 0)
		return rc;
	job->id = r->id;
	job->session = r->session;
	job->usage = &r->session->usage;
	job->answer = answer_job;
	job->by_ring = r->by_ring;
	job->arrived_ns = r->arrived_ns;
	if (deadline_us && !__builtin_mul_overflow(deadline_us, 1000u, &deadline_ns) &&
	    !__builtin_add_overflow(deadline_ns, job->arrived_ns, &deadline_ns))
		job->deadline_ns = deadline_ns;
	return 0;
}

/* ---- Jobs of a message ---- */

/* A job of more ops is made in steps, so that others need not wait. */
#define SHORT_OPS 8
#define STEP_OPS  16 /* ops bound in one step */

static bool is_long(const Kops__V1__Submit *submit)
{
	return submit->n_ops > SHORT_OPS;
}

void runs_unmake(struct request *r)
{
	if (r->making.job)
		job_free(r->making.job);
	if (r->making.is_new)
		prepared_forget(r->making.prepared);
}

static int end_making(struct request *r, int rc)
{
	if (rc < 0)
		runs_unmake(r);
	return rc;
}

/* Checks again, because others had turns since the job was begun. */
static int finish(struct request *r)
{
	int rc = check(r, r->making.submit->device);

	return end_making(r, rc < 0 ? rc : r->making.finish(r));
}

static int plan_job(struct request *r)
{
	struct making *m = &r->making;
	int rc = job_plan(m->job, &m->planning, r->why);

	if (rc < 0)
		return end_making(r, rc);
	r->next = rc == PLAN_GOES_ON ? plan_job : finish;
	return 0;
}

static int plan_at_once(struct request *r)
{
	struct making *m = &r->making;
	int rc;

	do
		rc = job_plan(m->job, &m->planning, r->why);
	while (rc == PLAN_GOES_ON);
	return end_making(r, rc < 0 ? rc : m->finish(r));
}

/* Keeps the message for Run. If it cannot be kept, the job runs anyway. */
static int keep_message(struct request *r)
{
	struct session *s = r->session;
	struct making *m = &r->making;
	int rc;

	if (!m->submit->prepare || m->prepared)
		return 0;
	rc = prepared_new(s->engine, s->account, &s->prepared, m->submit, s->all->desk->in, r->bytes,
	                  &m->prepared, r->why);
	m->is_new = rc == 0;
	return m->submit->only_prepare ? rc : 0;
}

static int begin_job(struct request *r)
{
	struct session *s = r->session;
	const Kops__V1__Submit *submit = r->making.submit;
	struct job *job = job_new(s->engine, s->account, &s->queues, submit->queue, (unsigned)submit->n_ops,
	                          decode_views_max(submit));

	if (!job)
		return KOPS_E_NOMEM;
	r->making.job = job;
	r->making.planning.device_name = submit->device;
	job->sched.priority = (kops_priority)submit->priority;
	job->run.timed = submit->timed;
	return 0;
}

/* Binds the next ops. */
static int bind_some(struct request *r)
{
	struct making *m = &r->making;
	unsigned n = (unsigned)m->submit->n_ops;
	unsigned end = n - m->n_bound > STEP_OPS ? m->n_bound + STEP_OPS : n;
	int rc = bind_ops(r, m->submit, m->job, m->n_bound, end);

	if (rc < 0)
		return end_making(r, rc);
	m->n_bound = end;
	if (!is_long(m->submit))
		return plan_at_once(r);
	r->next = end < n ? bind_some : plan_job;
	return 0;
}

static int make(struct request *r)
{
	int rc = keep_message(r);

	if (rc == 0)
		rc = begin_job(r);
	if (rc < 0)
		return end_making(r, rc);
	if (!is_long(r->making.submit))
		return bind_some(r);
	r->next = bind_some;
	return 0;
}

int runs_make(struct request *r)
{
	int rc = check(r, r->making.submit->device);

	if (rc < 0)
		return rc;
	if (!is_long(r->making.submit))
		return make(r);
	r->next = make;
	return 0;
}

int runs_submit(struct request *r)
{
	const struct making *m = &r->making;
	int rc = enter_job(r, m->job, m->deadline_us);

	if (rc < 0)
		return rc;
	if (m->prepared) {
		m->job->number = m->prepared->number;
		prepared_take(m->prepared, m->job);
	}
	job_submit(m->job);
	return 0;
}

/* ---- Prepared jobs ---- */

static int unpack_again(struct request *r)
{
	struct message_unpacking *u = &r->session->all->desk->unpacking;

	if (!message_unpack_some(u, STEP_BYTES)) {
		r->next = unpack_again;
		return 0;
	}
	if (u->why) { /* cannot fail: it was unpacked before */
		snprintf(r->why, sizeof r->why, "invalid prepared job: %s", u->why);
		return KOPS_E_FAULT;
	}
	r->making.submit = ((const Kops__V1__Request *)u->msg)->submit;
	r->next = make;
	return 0;
}

/* Makes the job again from its message, as if that had just come. */
static int run_anew(struct request *r, struct prepared *p, uint64_t deadline_us)
{
	struct desk *desk = r->session->all->desk;

	prepared_cool(p);
	r->making = (struct making){
	    .prepared = p, .deadline_us = deadline_us ? deadline_us : p->deadline_us, .finish = runs_submit};
	message_unpack_begin(&desk->unpacking, &kops__v1__request__descriptor, p->message, p->message_bytes,
	                     MESSAGE_UNKNOWN_REFUSED, &desk->arena);
	return unpack_again(r);
}

int runs_run(struct request *r, uint64_t number, uint64_t deadline_us)
{
	struct prepared *p = idmap_get(&r->session->prepared, number);
	struct job *job;
	int rc;

	if (!p) {
		snprintf(r->why, sizeof r->why, "no job is prepared as %" PRIu64 "; send its Submit again",
		         number);
		return KOPS_E_NOT_FOUND;
	}
	if (p->job && p->job->state != JOB_READY) {
		snprintf(r->why, sizeof r->why, "prepared job %" PRIu64 " is still running; wait for its reply",
		         number);
		return KOPS_E_EXISTS;
	}
	rc = check(r, "");
	if (rc < 0)
		return rc;
	job = prepared_ready_job(p);
	if (!job)
		return run_anew(r, p, deadline_us);
	rc = enter_job(r, job, deadline_us ? deadline_us : p->deadline_us);
	if (rc < 0)
		return rc;
	job->run.watched = r->by_ring && ring_is_watched(r->session->ring);
	job_submit(job);
	return 0;
}
