#include "share/scheduler.h"

#include <math.h>
#include <stddef.h>

static struct sched_job *first_of(const struct sched_queue *q)
{
	return list_first(&q->jobs, struct sched_job, link);
}

static void queue_link(struct sched *s, struct sched_queue *q)
{
	if (list_is_empty(&q->flow->queues))
		list_push_first(&s->flows, &q->flow->link);
	list_push_first(&q->flow->queues, &q->link);
}

static void queue_unlink(struct sched_queue *q)
{
	list_remove(&q->link);
	if (list_is_empty(&q->flow->queues))
		list_remove(&q->flow->link);
}

/* Returns true if the queue's next job may go to the device. While a job of the queue is in flight, only its
 * own device keeps the order, and only if that job neither pauses nor runs beside others. */
static bool may_follow(const struct sched_queue *q, unsigned device)
{
	return !q->running || (q->running_device == device && !q->running_holds);
}

static bool is_eligible(const struct sched_job *job)
{
	return !job->blocked && may_follow(job->queue, job->device);
}

static int rank(kops_priority priority)
{
	return priority == KOPS_HIGH ? 0 : priority == KOPS_LOW ? 2 : 1;
}

/* Jobs of a higher tier wait until no flow has any of a lower one. */
static unsigned tier_of(const struct sched_job *job)
{
	const struct sched_flow *flow = job->queue->flow;

	if (flow->share && *flow->share == 0)
		return 2;
	return job->priority == KOPS_LOW ? 1 : 0;
}

/* The virtual time that a flow is charged for a us. */
static double rate_of(const struct sched_flow *flow)
{
	return flow->share && *flow->share > 0 ? (double)SCHED_SHARE / (double)*flow->share : 1;
}

/* Orders jobs of one flow. */
static bool job_goes_first(const struct sched_job *a, const struct sched_job *b)
{
	return a->priority != b->priority ? rank(a->priority) < rank(b->priority) : a->seq < b->seq;
}

/* For heap.h. */
static bool queue_goes_first(const struct heap_node *a, const struct heap_node *b)
{
	return job_goes_first(first_of(container_of(a, struct sched_queue, ready)),
	                      first_of(container_of(b, struct sched_queue, ready)));
}

/* The job that a flow would run next on the device. */
static struct sched_job *choice_of(const struct fair_party *party)
{
	const struct sched_share *share = container_of(party, struct sched_share, party);

	return first_of(container_of(share->ready.first, struct sched_queue, ready));
}

/* For fair.h: compares the flows' own choices, so that HIGH counts only within a flow. */
static bool flow_goes_before(const struct fair_queue *queue, const struct fair_party *a,
                             const struct fair_party *b)
{
	const struct sched_job *job_a = choice_of(a), *job_b = choice_of(b);
	unsigned tier_a = tier_of(job_a), tier_b = tier_of(job_b);

	(void)queue;
	if (tier_a != tier_b)
		return tier_a < tier_b;
	return a->vtime != b->vtime ? a->vtime < b->vtime : job_a->seq < job_b->seq;
}

/* ---- Queues that can start their first job ---- */

/* Removes q from the heap, if it is there. Call it before q's head or eligibility changes. */
static void leave_heap(struct sched_queue *q)
{
	struct sched_share *share;

	if (!heap_has(&q->ready))
		return;
	share = &q->flow->devices[first_of(q)->device];
	heap_remove(&share->ready, &q->ready, queue_goes_first);
	if (!share->ready.first)
		fair_leave(&share->party);
}

/* Puts q into the heap of its flow, if its first job may start. Call it after the change. */
static void enter_heap(struct sched *s, struct sched_queue *q)
{
	const struct sched_job *first = first_of(q);
	struct sched_share *share;

	if (heap_has(&q->ready) || !first || !is_eligible(first))
		return;
	share = &q->flow->devices[first->device];
	heap_put(&share->ready, &q->ready, queue_goes_first);
	if (!fair_waits(&share->party))
		fair_wait(&s->devices[first->device].fair, &share->party);
}

static struct sched_job *pick(const struct sched *s, unsigned device)
{
	const struct fair_party *next = fair_next(&s->devices[device].fair, flow_goes_before);

	return next ? choice_of(next) : NULL;
}

static bool is_within(const struct fair_party *party, double most_us)
{
	return choice_of(party)->cost_us <= most_us;
}

struct sched_job *sched_instead(const struct sched *s, const struct sched_job *next, double most_us)
{
	const struct fair_party *party =
	    fair_next_within(&s->devices[next->device].fair, flow_goes_before, is_within, most_us);
	struct sched_job *job = party ? choice_of(party) : NULL;

	return job && job != next && tier_of(job) <= tier_of(next) ? job : NULL;
}

void sched_unblock(struct sched *s, struct sched_job *job)
{
	PRE(job->blocked);
	job->blocked = false;
	enter_heap(s, job->queue);
}

/* ---- Jobs in and out ---- */

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
	struct sched_share *share = &queue->flow->devices[job->device];
	unsigned d = job->device;

	job->queue = queue;
	job->seq = s->next_seq++;
	if (list_is_empty(&queue->jobs))
		queue_link(s, queue);
	list_push_last(&queue->jobs, &job->link);
	enter_heap(s, queue);
	if (share->load++ == 0) {
		s->devices[d].flows_loaded++;
		fair_catch_up(&s->devices[d].fair, &share->party);
	}
	job->left_us = 0;
	sched_progress(s, job, job->cost_us);
	s->devices[d].waiting++;
	s->devices[d].load++;
}

/* Removes a job. The caller lets the queue enter the heap again when all other state is final. */
static void take_job_out(struct sched *s, struct sched_job *job)
{
	struct sched_queue *q = job->queue;

	leave_heap(q);
	list_remove(&job->link);
	if (list_is_empty(&q->jobs))
		queue_unlink(q);
	s->devices[job->device].waiting--;
}

/* A flow that could not run, because its jobs were blocked or of a higher tier, has saved nothing up either.
 */
static void start_job(struct sched *s, struct sched_job *job)
{
	struct sched_queue *q = job->queue;
	struct fair_queue *fair = &s->devices[job->device].fair;
	struct fair_party *party = &q->flow->devices[job->device].party;

	take_job_out(s, job);
	q->running++;
	q->running_device = job->device;
	q->running_holds = job->may_pause || job->beside;
	enter_heap(s, q);
	fair_catch_up(fair, party);
	fair_begin(fair, party);
	job->started_at = party->vtime;
	job->rate = rate_of(q->flow);
	fair_charge(fair, party, job->cost_us * job->rate);
}

void sched_start_now(struct sched *s, struct sched_queue *queue, struct sched_job *job)
{
	sched_add(s, queue, job);
	start_job(s, job);
}

struct sched_job *sched_next(struct sched *s, unsigned device,
                             struct sched_job *(*choose)(struct sched_job *next))
{
	struct sched_job *next = pick(s, device);

	if (next && choose)
		next = choose(next);
	if (next)
		start_job(s, next);
	return next;
}

/* Rounding errors must leave nothing behind. */
static void shrink(double *backlog_us, double left_us, unsigned load)
{
	*backlog_us -= left_us;
	if (*backlog_us < 0.0 || load == 0)
		*backlog_us = 0.0;
}

static void unload(struct sched *s, struct sched_job *job)
{
	struct sched_share *share = &job->queue->flow->devices[job->device];
	unsigned d = job->device;

	PRE(share->load > 0 && s->devices[d].load > 0);
	if (--share->load == 0)
		s->devices[d].flows_loaded--;
	if (--s->devices[d].load == 0)
		fair_forget(&s->devices[d].fair);
	shrink(&job->queue->backlog_us, job->left_us, !list_is_empty(&job->queue->jobs) || job->queue->running);
	shrink(&share->backlog_us, job->left_us, share->load);
	shrink(&s->devices[d].backlog_us, job->left_us, s->devices[d].load);
}

bool sched_flow_is_ahead(const struct sched *s, const struct sched_flow *flow)
{
	for (unsigned d = 0; d < SCHED_DEVICES_MAX; d++)
		if (fair_is_ahead(&s->devices[d].fair, &flow->devices[d].party))
			return true;
	return false;
}

/* Corrects the charge of a job that the device has given back, from its estimate to the time it took. */
static void settle_charge(struct sched *s, const struct sched_job *job)
{
	fair_charge(&s->devices[job->device].fair, &job->queue->flow->devices[job->device].party,
	            (job->took_us - job->cost_us) * job->rate);
}

void sched_finish(struct sched *s, struct sched_job *job)
{
	PRE(job->queue->running > 0);
	job->queue->running--;
	enter_heap(s, job->queue);
	if (job->took_us > 0)
		settle_charge(s, job);
	unload(s, job);
}

static void put_first(struct sched *s, struct sched_job *job)
{
	struct sched_queue *q = job->queue;

	if (list_is_empty(&q->jobs))
		queue_link(s, q);
	leave_heap(q);
	list_push_first(&q->jobs, &job->link);
	enter_heap(s, q);
	s->devices[job->device].waiting++;
}

void sched_pause(struct sched *s, struct sched_job *job, double left_us)
{
	PRE(job->queue->running > 0);
	job->queue->running--;
	settle_charge(s, job);
	sched_progress(s, job, left_us);
	job->cost_us = left_us;
	job->took_us = 0;
	job->seq = s->next_seq++; /* after the other queues of its flow */
	put_first(s, job);
}

/* Considers virtual time, tier and priority only. */
static double yields_after_us(const struct sched_job *started, const struct sched_job *next)
{
	const struct sched_flow *f = started->queue->flow;

	if (tier_of(next) != tier_of(started))
		return tier_of(next) < tier_of(started) ? 0 : INFINITY;
	if (next->queue->flow == f && rank(next->priority) != rank(started->priority))
		return rank(next->priority) < rank(started->priority) ? 0 : INFINITY;
	if (next->queue->flow == f)
		return SCHED_QUEUE_SLICE_US;
	return (next->queue->flow->devices[started->device].party.vtime - started->started_at) / started->rate;
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
	take_job_out(s, job);
	enter_heap(s, job->queue);
	unload(s, job);
}

void sched_each_waiting(struct sched *s, void (*visit)(struct sched_job *job))
{
	struct sched_flow *flow, *next_flow;
	struct sched_queue *queue, *next_queue;
	struct sched_job *job, *next_job;

	list_for_each_safe (flow, next_flow, &s->flows, link)
		list_for_each_safe (queue, next_queue, &flow->queues, link)
			list_for_each_safe (job, next_job, &queue->jobs, link)
				visit(job);
}
