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

/* Behind a job of its queue that is out only the device keeps a job in order, and only if that one does not
 * pause. */
static bool may_follow(const struct sched_queue *q, unsigned device)
{
	return !q->running || (q->running_device == device && !q->running_may_pause);
}

static bool is_eligible(const struct sched_job *job)
{
	return !job->blocked && may_follow(job->queue, job->device);
}

static int rank(kops_priority priority)
{
	return priority == KOPS_HIGH ? 0 : priority == KOPS_LOW ? 2 : 1;
}

/* Of one flow. */
static bool goes_first(const struct sched_job *a, const struct sched_job *b)
{
	return a->priority != b->priority ? rank(a->priority) < rank(b->priority) : a->seq < b->seq;
}

/* Of two flows: only their own choices compete, so that HIGH counts inside a flow only. */
static bool goes_before(const struct sched_job *a, const struct sched_job *b)
{
	const struct sched_flow *fa = a->queue->flow, *fb = b->queue->flow;
	bool low_a = a->priority == KOPS_LOW, low_b = b->priority == KOPS_LOW;

	if (low_a != low_b)
		return low_b;
	if (fa->devices[a->device].vtime != fb->devices[b->device].vtime)
		return fa->devices[a->device].vtime < fb->devices[b->device].vtime;
	return a->seq < b->seq;
}

/* ---- Queues whose first job may start ---- */

/*
 * A pairing heap for each flow and device (Fredman, Sedgewick, Sleator and Tarjan 1986): a user may have a
 * thousand queues, and a choice takes the loop's time. The first job of a queue in it stays while it is there.
 */
static struct sched_queue *meld(struct sched_queue *a, struct sched_queue *b)
{
	struct sched_queue *top = b && (!a || goes_first(b->head, a->head)) ? b : a, *below = top == a ? b : a;

	if (!below)
		return top;
	below->sibling = top->child;
	if (below->sibling)
		below->sibling->place = &below->sibling;
	below->place = &top->child;
	top->child = below;
	return top;
}

/* Of siblings: pairs from the first on, then these from the last on. */
static struct sched_queue *meld_all(struct sched_queue *first)
{
	struct sched_queue *pairs = NULL, *top = NULL, *next;

	while (first) {
		struct sched_queue *second = first->sibling, *pair;

		next = second ? second->sibling : NULL;
		pair = meld(first, second);
		pair->sibling = pairs;
		pairs = pair;
		first = next;
	}
	for (; pairs; pairs = next) {
		next = pairs->sibling;
		top = meld(top, pairs);
	}
	return top;
}

static void put_on_top(struct sched_queue **heap, struct sched_queue *top)
{
	*heap = top;
	if (!top)
		return;
	top->sibling = NULL;
	top->place = heap;
}

/* Before its first job or what may follow changes. */
static void leave_heap(struct sched_queue *q)
{
	struct sched_queue **heap, *rest;

	if (!q->place)
		return;
	heap = &q->flow->devices[q->head->device].ready;
	rest = meld_all(q->child);
	if (*heap != q) {
		*q->place = q->sibling;
		if (q->sibling)
			q->sibling->place = q->place;
		rest = meld(*heap, rest);
	}
	put_on_top(heap, rest);
	q->child = q->sibling = NULL;
	q->place = NULL;
}

/* Afterwards. */
static void enter_heap(struct sched_queue *q)
{
	struct sched_queue **heap;

	if (q->place || !q->head || !is_eligible(q->head))
		return;
	heap = &q->flow->devices[q->head->device].ready;
	put_on_top(heap, meld(*heap, q));
}

static struct sched_job *pick(const struct sched *s, unsigned device)
{
	struct sched_job *best = NULL;

	if (!s->devices[device].waiting)
		return NULL;
	for (const struct sched_flow *f = s->flows; f; f = f->next) {
		const struct sched_queue *q = f->devices[device].ready;

		if (q && (!best || goes_before(q->head, best)))
			best = q->head;
	}
	return best;
}

void sched_unblock(struct sched *s, struct sched_job *job)
{
	job->blocked = false;
	s->blocked--;
	enter_heap(job->queue);
}

/* ---- Jobs in and out ---- */

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
	enter_heap(queue);
	if (flow->devices[d].load++ == 0) {
		s->devices[d].flows_loaded++;
		catch_up(s, flow, d);
	}
	job->left_us = 0;
	sched_progress(s, job, job->cost_us);
	s->devices[d].waiting++;
	s->devices[d].load++;
	s->blocked += job->blocked;
}

static void charge(struct sched *s, struct sched_flow *f, unsigned device, double us)
{
	f->devices[device].vtime += us;
	if (f->devices[device].vtime > s->devices[device].vlast)
		s->devices[device].vlast = f->devices[device].vtime;
}

/* Its queue enters the heap again when all else is as it will be. */
static void take_out(struct sched *s, struct sched_job *job)
{
	struct sched_queue *q = job->queue;

	leave_heap(q);
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
	s->blocked -= job->blocked;
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
	enter_heap(q);
	catch_up(s, f, d);
	s->devices[d].vclock = f->devices[d].vtime;
	job->started_at = f->devices[d].vtime;
	charge(s, f, d, job->cost_us);
}

struct sched_job *sched_next(struct sched *s, unsigned device,
                             struct sched_job *(*choose)(struct sched_job *next))
{
	struct sched_job *next = pick(s, device);

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
	enter_heap(job->queue);
	if (job->took_us > 0)
		charge(s, job->queue->flow, job->device, job->took_us - job->cost_us);
	unload(s, job);
}

static void put_first(struct sched *s, struct sched_job *job)
{
	struct sched_queue *q = job->queue;

	if (!q->head)
		queue_link(s, q);
	leave_heap(q);
	put_between(NULL, job, q->head);
	enter_heap(q);
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
	const struct sched_job *next = pick(s, started->device);

	return next ? fmax(yields_after_us(started, next), slice_us(next)) : INFINITY;
}

void sched_remove(struct sched *s, struct sched_job *job)
{
	take_out(s, job);
	enter_heap(job->queue);
	unload(s, job);
}
