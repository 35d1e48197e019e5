#include "share/scheduler.h"

#include <math.h>
#include <stddef.h>

static void flow_link(struct sched *s, struct sched_flow *f)
{
	f->prev = NULL;
	f->next = s->flows;
	if (s->flows)
		s->flows->prev = f;
	s->flows = f;
}

static void flow_unlink(struct sched *s, struct sched_flow *f)
{
	if (f->prev)
		f->prev->next = f->next;
	else
		s->flows = f->next;
	if (f->next)
		f->next->prev = f->prev;
	f->next = f->prev = NULL;
}

static void queue_link(struct sched *s, struct sched_queue *q)
{
	if (!q->flow->queues)
		flow_link(s, q->flow);
	q->prev = NULL;
	q->next = q->flow->queues;
	if (q->next)
		q->next->prev = q;
	q->flow->queues = q;
}

static void queue_unlink(struct sched *s, struct sched_queue *q)
{
	if (q->prev)
		q->prev->next = q->next;
	else
		q->flow->queues = q->next;
	if (q->next)
		q->next->prev = q->prev;
	q->next = q->prev = NULL;
	if (!q->flow->queues)
		flow_unlink(s, q->flow);
}

/* In its queue; NULL: nothing is there. */
static void put_between(struct sched_job *before, struct sched_job *job, struct sched_job *after)
{
	struct sched_queue *q = job->queue;

	job->prev = before;
	job->next = after;
	if (before)
		before->next = job;
	else
		q->head = job;
	if (after)
		after->prev = job;
	else
		q->tail = job;
}

/* Behind the clock is only who could not run before: idle, blocked, LOW. That saves up nothing. */
static void catch_up(const struct sched *s, struct sched_flow *f, unsigned device)
{
	if (f->devices[device].vtime < s->devices[device].vclock)
		f->devices[device].vtime = s->devices[device].vclock;
}

void sched_progress(struct sched *s, struct sched_job *job, double left_us)
{
	double more_us = left_us - job->left_us;

	job->queue->backlog_us += more_us;
	job->queue->flow->devices[job->device].backlog_us += more_us;
	s->devices[job->device].backlog_us += more_us;
	job->left_us = left_us;
}

void sched_add(struct sched *s, struct sched_queue *queue, struct sched_job *job)
{
	struct sched_flow *flow = queue->flow;
	unsigned d = job->device;

	job->queue = queue;
	job->seq = s->next_seq++;
	if (!queue->head)
		queue_link(s, queue);
	put_between(queue->head ? queue->tail : NULL, job, NULL);
	if (flow->devices[d].load++ == 0) {
		s->devices[d].flows_loaded++;
		catch_up(s, flow, d);
	}
	job->left_us = 0;
	sched_progress(s, job, job->cost_us);
	s->devices[d].waiting++;
	s->devices[d].load++;
}

/* Behind a job of its queue that is out only the device keeps a job in order, and only if that one does not
 * pause. */
static bool may_follow(const struct sched_queue *q, unsigned device)
{
	return !q->running || (q->running_device == device && !q->running_may_pause);
}

static bool eligible(const struct sched_queue *q, unsigned device)
{
	const struct sched_job *job = q->head;

	return job->device == device && !job->blocked && may_follow(q, device);
}

static int rank(kops_priority priority)
{
	return priority == KOPS_HIGH ? 0 : priority == KOPS_LOW ? 2 : 1;
}

static bool goes_before(const struct sched_job *a, const struct sched_job *b)
{
	const struct sched_flow *fa = a->queue->flow, *fb = b->queue->flow;
	bool low_a = a->priority == KOPS_LOW, low_b = b->priority == KOPS_LOW;

	if (low_a != low_b)
		return low_b;
	if (fa != fb && fa->devices[a->device].vtime != fb->devices[b->device].vtime)
		return fa->devices[a->device].vtime < fb->devices[b->device].vtime;
	if (fa == fb && a->priority != b->priority)
		return rank(a->priority) < rank(b->priority);
	return a->seq < b->seq;
}

/* A flow's own choice; only these compete between flows, so that HIGH counts inside a flow only. */
static struct sched_job *flow_pick(const struct sched_flow *f, unsigned device, const struct sched_queue *but)
{
	struct sched_job *best = NULL;

	for (struct sched_queue *q = f->queues; q; q = q->next)
		if (q != but && eligible(q, device) && (!best || goes_before(q->head, best)))
			best = q->head;
	return best;
}

/* Of all queues but one; NULL: of all. */
static struct sched_job *pick(const struct sched *s, unsigned device, const struct sched_queue *but)
{
	struct sched_job *best = NULL;

	if (!s->devices[device].waiting)
		return NULL;
	for (const struct sched_flow *f = s->flows; f; f = f->next) {
		struct sched_job *job = flow_pick(f, device, but);
		if (job && (!best || goes_before(job, best)))
			best = job;
	}
	return best;
}

static void charge(struct sched *s, struct sched_flow *f, unsigned device, double us)
{
	f->devices[device].vtime += us;
	if (f->devices[device].vtime > s->devices[device].vlast)
		s->devices[device].vlast = f->devices[device].vtime;
}

static void take_out(struct sched *s, struct sched_job *job)
{
	struct sched_queue *q = job->queue;

	if (job->prev)
		job->prev->next = job->next;
	else
		q->head = job->next;
	if (job->next)
		job->next->prev = job->prev;
	else
		q->tail = job->prev;
	job->next = job->prev = NULL;
	if (!q->head)
		queue_unlink(s, q);
	s->devices[job->device].waiting--;
}

static void start(struct sched *s, struct sched_job *job)
{
	struct sched_queue *q = job->queue;
	struct sched_flow *f = q->flow;
	unsigned d = job->device;

	take_out(s, job);
	q->running++;
	q->running_device = d;
	q->running_may_pause = job->may_pause;
	catch_up(s, f, d);
	s->devices[d].vclock = f->devices[d].vtime;
	job->started_at = f->devices[d].vtime;
	charge(s, f, d, job->cost_us);
}

struct sched_job *sched_next(struct sched *s, unsigned device,
                             struct sched_job *(*choose)(struct sched_job *next))
{
	struct sched_job *next = pick(s, device, NULL);

	if (next && choose)
		next = choose(next);
	if (next)
		start(s, next);
	return next;
}

/* Rounding must leave nothing behind. */
static void shrink(double *backlog_us, double left_us, unsigned load)
{
	*backlog_us -= left_us;
	if (*backlog_us < 0.0 || load == 0)
		*backlog_us = 0.0;
}

static void unload(struct sched *s, struct sched_job *job)
{
	struct sched_flow *f = job->queue->flow;
	unsigned d = job->device;

	if (--f->devices[d].load == 0)
		s->devices[d].flows_loaded--;
	if (--s->devices[d].load == 0)
		s->devices[d].vclock = s->devices[d].vlast;
	shrink(&job->queue->backlog_us, job->left_us, job->queue->head || job->queue->running);
	shrink(&f->devices[d].backlog_us, job->left_us, f->devices[d].load);
	shrink(&s->devices[d].backlog_us, job->left_us, s->devices[d].load);
}

bool sched_flow_is_ahead(const struct sched *s, const struct sched_flow *flow)
{
	for (unsigned d = 0; d < SCHED_DEVICES_MAX; d++)
		if (flow->devices[d].vtime > s->devices[d].vclock)
			return true;
	return false;
}

void sched_finish(struct sched *s, struct sched_job *job)
{
	job->queue->running--;
	if (job->took_us > 0)
		charge(s, job->queue->flow, job->device, job->took_us - job->cost_us);
	unload(s, job);
}

static void put_first(struct sched *s, struct sched_job *job)
{
	struct sched_queue *q = job->queue;

	if (!q->head)
		queue_link(s, q);
	put_between(NULL, job, q->head);
	s->devices[job->device].waiting++;
}

void sched_pause(struct sched *s, struct sched_job *job, double left_us)
{
	struct sched_flow *f = job->queue->flow;
	unsigned d = job->device;

	job->queue->running--;
	charge(s, f, d, job->took_us - job->cost_us);
	sched_progress(s, job, left_us);
	job->cost_us = left_us;
	job->took_us = 0;
	job->seq = s->next_seq++; /* behind the other queues of its flow */
	put_first(s, job);
}

/* By virtual time and priority alone. */
static double yields_after_us(const struct sched_job *started, const struct sched_job *next)
{
	const struct sched_flow *f = started->queue->flow;

	if ((next->priority == KOPS_LOW) != (started->priority == KOPS_LOW))
		return next->priority == KOPS_LOW ? INFINITY : 0;
	if (next->queue->flow == f && rank(next->priority) != rank(started->priority))
		return rank(next->priority) < rank(started->priority) ? 0 : INFINITY;
	if (next->queue->flow == f)
		return SCHED_TURN_US;
	return next->queue->flow->devices[started->device].vtime - started->started_at;
}

static double slice_us(const struct sched_job *next)
{
	return fmax(SCHED_SLICE_MIN_US, fmin(next->cost_us, SCHED_SLICE_US));
}

double sched_yields_after_us(const struct sched *s, const struct sched_job *started)
{
	const struct sched_job *next = pick(s, started->device, started->queue);

	return next ? fmax(yields_after_us(started, next), slice_us(next)) : INFINITY;
}

void sched_remove(struct sched *s, struct sched_job *job)
{
	take_out(s, job);
	unload(s, job);
}
