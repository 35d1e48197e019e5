/*
 * scheduler.h: decides which job runs next on each device. Plain data and pure functions: no clock, no I/O, no
 * locks.
 *
 * Every session has queues; the jobs of a queue run in order. The queues of one user (uid) form a flow. Flows
 * share a device by estimated cost (start-time fair queuing, Goyal, Vin and Cheng 1996). Each flow has a
 * virtual time per device, which advances by the cost of the jobs that it was given. The flow that is furthest
 * behind goes next. A flow that was idle, or whose jobs could not run, starts at the device's clock, so it
 * saves nothing up.
 *
 * When a job ends, its flow is charged for how long the job kept the device from others instead of its
 * estimate. When a device runs out of work, its clock moves past all flows, so their past use is forgotten. A
 * job that can be paused between two ops is paused when another flow should run; it is charged for the time it
 * took so far.
 *
 * Priorities: HIGH goes before other jobs of its own flow only, since any client may ask for it. LOW waits
 * until no flow has other work for the device. Flows with a share of 0 wait for LOW jobs too. The virtual time
 * of any other flow advances in inverse proportion to its share.
 */
#ifndef KOPS_SCHEDULER_H
#define KOPS_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/fair.h"
#include "base/heap.h"
#include "base/list.h"
#include "kops_types.h"

#define SCHED_DEVICES_MAX    16
#define SCHED_QUEUE_SLICE_US 50e3 /* time of a job, before another queue of the same flow continues */
/* How long a job runs before it is paused, for a short and for a long waiting job. Changing jobs costs some 20
 * µs. */
#define SCHED_SLICE_MIN_US 50.0
#define SCHED_SLICE_US     200.0
#define SCHED_SHARE        100 /* of a flow, if nothing else is said */

struct sched_job {
	struct list_link link; /* in its queue, while it waits */
	struct sched_queue *queue;
	uint64_t seq;    /* order of arrival */
	unsigned device; /* index */
	kops_priority priority;
	double cost_us;    /* estimate */
	double left_us;    /* the part of cost_us that still counts in backlogs */
	double took_us;    /* measured, before sched_finish() or sched_pause(); 0: unknown */
	double started_at; /* virtual time of its flow when it was last started */
	double rate;       /* of that virtual time: what a us was charged then */
	bool blocked;      /* waits for one of its buffers; see sched_unblock() */
	bool may_pause;    /* it may come back unfinished, so later jobs of its queue wait until it ends */
	bool beside; /* it runs beside the device's others, in no order with them, so later jobs wait too */
};

struct sched_queue {
	struct list_link link; /* in its flow, while the queue has waiting jobs */
	struct sched_flow *flow;
	struct list jobs; /* waiting, in order */
	unsigned running; /* dispatched, not finished */
	unsigned running_device;
	bool running_holds;     /* later jobs wait until the last of these has ended */
	double backlog_us;      /* estimated time left of waiting and running jobs */
	uint64_t lane;          /* unique; the device keeps runs of one lane in order */
	struct heap_node ready; /* in its flow's heap, while its first job may start */
};

/* A flow's use of one device. It waits for the device while its heap has ready queues. */
struct sched_share {
	struct fair_party party;
	struct heap ready; /* the queue with the next job is first */
	double backlog_us; /* estimated time left of waiting and running jobs */
	unsigned load;     /* waiting + running */
};

struct sched_flow {
	struct list_link link; /* in sched.flows, while it has waiting jobs */
	struct list queues;    /* with waiting jobs */
	const uint64_t *share; /* its user's setting, which may change at any time; NULL: SCHED_SHARE */
	struct sched_share devices[SCHED_DEVICES_MAX];
};

struct sched {
	struct list flows; /* with waiting jobs */
	uint64_t next_seq;
	struct {
		struct fair_queue fair; /* of sched_share.party */
		double backlog_us;      /* estimated time left of waiting and running jobs */
		unsigned load;          /* waiting + running */
		unsigned waiting;       /* of load, the waiting jobs */
		unsigned flows_loaded;  /* flows with waiting or running jobs */
	} devices[SCHED_DEVICES_MAX];
};

/* Appends a job to a queue whose flow is set. The caller has set device, priority, cost_us and blocked. */
void sched_add(struct sched *s, struct sched_queue *queue, struct sched_job *job);

/* Adds a job to a queue of its own, and starts it out of turn: its device has nothing else to do. */
void sched_start_now(struct sched *s, struct sched_queue *queue, struct sched_job *job);

/*
 * Starts the next job of a device: removes it from its queue and counts it as running. Calls choose first,
 * unless it is NULL. choose returns the job, another waiting job that must start instead, or NULL to start
 * none. It may remove jobs. Returns the started job, or NULL.
 */
struct sched_job *sched_next(struct sched *s, unsigned device,
                             struct sched_job *(*choose)(struct sched_job *next));

/*
 * Returns the job that choose may give instead of `next`: the first that is planned to take at most most_us,
 * and that need not wait for next's tier. NULL: there is none.
 */
struct sched_job *sched_instead(const struct sched *s, const struct sched_job *next, double most_us);

/* The device of the queue's last waiting or running job; -1: there is none. */
static inline int sched_queue_device(const struct sched_queue *queue)
{
	const struct sched_job *last = list_last(&queue->jobs, struct sched_job, link);

	if (last)
		return (int)last->device;
	return queue->running ? (int)queue->running_device : -1;
}

/* Notes that left_us of a running job's estimate are left. It is charged when it ends. */
void sched_progress(struct sched *s, struct sched_job *job, double left_us);

/* Call it when a started job has ended. */
void sched_finish(struct sched *s, struct sched_job *job);

/*
 * Call it when a started job has stopped before its end, with left_us of it left. It is charged for the time it
 * took, and waits again as the first of its queue.
 */
void sched_pause(struct sched *s, struct sched_job *job, double left_us);

/* Returns the µs after its start at which a started job should make way for the waiting one; INFINITY: never.
 * That is no sooner than the waiting job is long, within bounds. */
double sched_yields_after_us(const struct sched *s, const struct sched_job *started);

/* Marks that the buffers of a waiting job are there. */
void sched_unblock(struct sched *s, struct sched_job *job);

/* Returns true if the flow is ahead of its share of some device. It must not escape that by reconnecting. */
bool sched_flow_is_ahead(const struct sched *s, const struct sched_flow *flow);

/*
 * Returns true if the flow may queue no more on a device: the device's backlog is over the limit, and the
 * flow's own is over an equal share of the limit. So one flow that fills the device does not keep others out.
 */
static inline bool sched_is_full(const struct sched *s, const struct sched_flow *flow, unsigned device,
                                 double limit_us)
{
	unsigned flows = s->devices[device].flows_loaded + (flow->devices[device].load ? 0 : 1);

	return s->devices[device].backlog_us > limit_us && flow->devices[device].backlog_us > limit_us / flows;
}

/* Removes a waiting job, because it was cancelled, expired or lost its session. */
void sched_remove(struct sched *s, struct sched_job *job);

/* Calls visit for each waiting job. visit may remove or end that job, but no other. */
void sched_each_waiting(struct sched *s, void (*visit)(struct sched_job *job));

#endif
