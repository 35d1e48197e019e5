/*
 * scheduler.h: who runs next on each device. Plain data and pure functions: no clock, no I/O, no locks.
 *
 * Every session has queues; a queue is in order. Queues of one user (uid) form a flow. Between flows a
 * device is shared by estimated cost: each flow has a virtual time per device that advances by the cost
 * of what it was given, and the flow that is furthest behind goes next (start-time fair queuing, Goyal,
 * Vin and Cheng 1996). A flow that was idle, or whose jobs could not run, starts at the device's clock, so
 * neither saves up anything. When a job ends it is charged for how long it kept the device from others instead
 * of its estimate. A device without work forgets what each flow has had: its clock moves past all of them.
 *
 * A job that can be paused between two ops is, when another's turn has come: it is charged for what it took so
 * far.
 *
 * Priorities: HIGH goes before other jobs of its own flow only, since any client may ask for it; LOW
 * waits until no flow has other work for the device.
 */
#ifndef KOPS_SCHEDULER_H
#define KOPS_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/fair.h"
#include "base/heap.h"
#include "base/list.h"
#include "kops_types.h"

#define SCHED_DEVICES_MAX 16
#define SCHED_TURN_US     50e3 /* of a job, before another queue of the same flow goes on */
/* To change jobs costs some 20 µs: a job is not paused sooner than this, for a short one and for a long one. */
#define SCHED_SLICE_MIN_US 50.0
#define SCHED_SLICE_US     200.0

struct sched_job {
	struct list_link link; /* in its queue, while it waits */
	struct sched_queue *queue;
	uint64_t seq;    /* order of arrival */
	unsigned device; /* index */
	kops_priority priority;
	double cost_us;    /* estimate */
	double left_us;    /* what backlogs count of it */
	double took_us;    /* measured, before sched_finish() or sched_pause(); 0: unknown */
	double started_at; /* virtual time of its flow when it was last started */
	bool blocked;      /* a buffer of it is not there yet; see sched_unblock() */
	bool may_pause; /* it may come back unfinished: those after it in its queue wait until it is through */
};

struct sched_queue {
	struct list_link link; /* in its flow, while it holds a job */
	struct sched_flow *flow;
	struct list jobs; /* waiting, in order */
	unsigned running; /* dispatched, not finished */
	unsigned running_device;
	bool running_may_pause; /* the last of these */
	double backlog_us;      /* estimated, of what is left of waiting + running */
	uint64_t lane;          /* unique; the device keeps runs of one lane in order */
	struct heap_node ready; /* in its flow's, while its first job may start */
};

/* What a flow has of a device. It waits for the device while its heap of ready queues holds any. */
struct sched_share {
	struct fair_party party;
	struct heap ready; /* the queue whose job goes first is first */
	double backlog_us; /* estimated, of what is left of waiting + running */
	unsigned load;     /* waiting + running */
};

struct sched_flow {
	struct list_link link; /* among flows with waiting jobs */
	struct list queues;    /* with waiting jobs */
	struct sched_share devices[SCHED_DEVICES_MAX];
};

struct sched {
	struct list flows; /* with waiting jobs */
	uint64_t next_seq;
	struct {
		struct fair_queue fair; /* of sched_share.party */
		double backlog_us;      /* estimated, of what is left of waiting + running */
		unsigned load;          /* waiting + running */
		unsigned waiting;       /* of these */
		unsigned flows_loaded;  /* flows with waiting or running jobs */
	} devices[SCHED_DEVICES_MAX];
};

/* Queues a job at the end of queue, whose flow is set. The caller has filled device, priority, cost_us,
 * blocked. */
void sched_add(struct sched *s, struct sched_queue *queue, struct sched_job *job);

/*
 * Starts the job that device should run next: it leaves its queue and is accounted for as running. choose is
 * asked first, NULL: nobody is. It returns the job, or one that waits too and has to start in its stead, or
 * NULL: none starts. It may take jobs out. Returns the started job, or NULL.
 */
struct sched_job *sched_next(struct sched *s, unsigned device,
                             struct sched_job *(*choose)(struct sched_job *next));

/* The device of the last job of the queue that waits or runs; -1: there is none. */
static inline int sched_queue_device(const struct sched_queue *queue)
{
	const struct sched_job *last = list_last(&queue->jobs, struct sched_job, link);

	if (last)
		return (int)last->device;
	return queue->running ? (int)queue->running_device : -1;
}

/* A started job has run for a while: so much of its estimate is left. It is charged when it ends. */
void sched_progress(struct sched *s, struct sched_job *job, double left_us);

/* A started job has ended. */
void sched_finish(struct sched *s, struct sched_job *job);

/*
 * A started job has stopped before its end, with left_us of it to do: it is charged for what it took, and waits
 * again as the first of its queue.
 */
void sched_pause(struct sched *s, struct sched_job *job, double left_us);

/* µs after its start from which on a started job should give way to the one that waits; INFINITY: not. No
 * sooner than the latter is long, within bounds. */
double sched_yields_after_us(const struct sched *s, const struct sched_job *started);

/* The buffers of a waiting job are there by now. */
void sched_unblock(struct sched *s, struct sched_job *job);

/* Whether the flow has had more of some device than its share so far, which it must not escape from. */
bool sched_flow_is_ahead(const struct sched *s, const struct sched_flow *flow);

/*
 * Whether the flow may queue no more on a device: its backlog is over the limit, and the flow's own is over an
 * equal share of that. So one flow that fills the device does not keep others out.
 */
static inline bool sched_is_full(const struct sched *s, const struct sched_flow *flow, unsigned device,
                                 double limit_us)
{
	unsigned flows = s->devices[device].flows_loaded + (flow->devices[device].load ? 0 : 1);

	return s->devices[device].backlog_us > limit_us && flow->devices[device].backlog_us > limit_us / flows;
}

/* Takes a waiting job out: cancelled, expired, its session gone. */
void sched_remove(struct sched *s, struct sched_job *job);

/* Calls visit for each waiting job; visit may take out or end that job, and no other. */
void sched_each_waiting(struct sched *s, void (*visit)(struct sched_job *job));

#endif
