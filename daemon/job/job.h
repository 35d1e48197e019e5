/*
 * job.h: ops that a client sent in one message, from arrival to answer. Loop thread only.
 *
 *     NEW → QUEUED → RUNNING ─→ DONE          (one that is prepared: → READY → QUEUED …; prepared.h)
 *      │       │       ⇅   └────→ FAILED
 *      │       │     PAUSED ────→ CANCELLED  (Cancel, the session gone)
 *      │       ├────→ CANCELLED  (Cancel, the session gone)
 *      │       └────→ FAILED     (deadline, shutdown, a buffer that could not be made)
 *      └→ freed: refused by its request
 *
 * A running job whose device can be had by others between two of its ops, or parts of one, is PAUSED when their
 * turn has come, and goes on later. It holds what it holds on the device meanwhile. To its client it runs.
 *
 * A job holds a reference on every buffer it names until it has ended, so a device never loses memory
 * under its hands, whatever the client does.
 *
 * plan.h decides where a job goes and by which kernels, dispatch/ when it starts, finish.h ends it.
 */
#ifndef KOPS_JOB_H
#define KOPS_JOB_H

#include "base/idmap.h"
#include "job/engine.h"
#include "job/uses.h"
#include "share/scheduler.h"

struct prepared;
struct session;

enum job_state { JOB_NEW, JOB_READY, JOB_QUEUED, JOB_RUNNING, JOB_PAUSED, JOB_DONE, JOB_FAILED, JOB_CANCELLED };

/* Of one session. */
struct job_queues {
	struct idmap by_id;     /* id → struct job_queue */
	struct job_queue *idle; /* the one without jobs; NULL: none */
};

/* One in-order queue; lives while it has jobs, and until another of its session has none. */
struct job_queue {
	struct sched_queue sched;
	struct job_queues *queues; /* NULL: the session has gone */
	uint32_t id;
	unsigned jobs;
};

struct job {
	struct sched_job sched;
	struct device_work work;
	struct run run;
	unsigned n_alike; /* learned_alike(); planned to be a trial, if its shape is due for one; 0: not */
	struct trial trial;
	bool settled; /* jobs of its shape have shown what they can: the next one runs the same kernels */
	enum job_state state;
	struct engine *engine;
	struct account *account;
	uint64_t id; /* request id */
	/* Called once at its end, unless the client has gone: NULL then. The rest is the caller's. */
	void (*answer)(struct job *job, int status, const char *why);
	struct session *session;
	bool is_withdrawn;   /* nobody wants its results any more: it stops where it can be paused */
	bool by_ring;        /* it came by its ring, where a place for the answer is reserved */
	struct usage *usage; /* its session's; NULL: that has gone */
	uint64_t arrived_ns, started_ns, ended_ns, deadline_ns;
	uint64_t resumed_ns;       /* last handed to its device */
	struct cost cost;          /* of all ops */
	uint64_t shape;            /* marks_shape() */
	bool has_choice;           /* several devices may run it */
	bool is_suspect;           /* such a job was at work when kopsd died: it runs alone */
	struct prepared *prepared; /* it goes on to be ready when it has ended; NULL: it is freed */
	uint64_t number;           /* what its message was kept as, if it was; 0: nothing */
	size_t bytes;              /* of this */
	struct list_link expiring; /* in engine.expiring, while it is QUEUED and has a deadline */
	struct list_link waiting;  /* in its first PENDING buffer's, while it is blocked */
	struct list_link out;      /* in its device's, while it is RUNNING */
	struct list_link paused;   /* in its device's, while it is PAUSED */
	struct uses uses;
	struct run_op ops[];
};

/* The diagram above. */
static inline bool job_may_move(enum job_state from, enum job_state to)
{
	static const unsigned char next[] = {
	    [JOB_NEW] = 1u << JOB_QUEUED | 1u << JOB_READY,
	    [JOB_READY] = 1u << JOB_QUEUED,
	    [JOB_QUEUED] = 1u << JOB_RUNNING | 1u << JOB_FAILED | 1u << JOB_CANCELLED,
	    [JOB_RUNNING] = 1u << JOB_PAUSED | 1u << JOB_DONE | 1u << JOB_FAILED,
	    [JOB_PAUSED] = 1u << JOB_RUNNING | 1u << JOB_CANCELLED,
	    [JOB_DONE] = 1u << JOB_READY,
	    [JOB_FAILED] = 1u << JOB_READY,
	    [JOB_CANCELLED] = 1u << JOB_READY,
	};

	return next[from] & 1u << to;
}

/* It is at work no more, if it was a suspect that ran alone, or waited to. */
static inline void job_no_longer_alone(const struct job *job)
{
	if (job->engine->suspect == job)
		job->engine->suspect = NULL;
}

/* Ends the daemon: it has a bug. */
void job_refuse_move(const struct job *job, enum job_state to) __attribute__((noreturn, cold));

static inline void job_move(struct job *job, enum job_state to)
{
	if (!job_may_move(job->state, to))
		job_refuse_move(job, to);
	job->state = to;
}

/* A NEW job of n_ops with n_views at most for a user, in the queue of this id, which is made when there is
 * none. NULL: out of memory. */
struct job *job_new(struct engine *engine, struct account *account, struct job_queues *queues, uint32_t queue,
                    unsigned n_ops, size_t n_views);
/* Frees a job that is NEW or READY, or has ended. */
void job_free(struct job *job);
/* The session of these queues has gone; their jobs may still run. */
void job_queues_forget(struct job_queues *queues);

static inline struct engine_device *job_device(const struct job *job)
{
	return &job->engine->devices[job->sched.device];
}

static inline struct job *job_of_sched(struct sched_job *sched)
{
	return container_of(sched, struct job, sched);
}

static inline struct job *job_of_work(struct device_work *work)
{
	return container_of(work, struct job, work);
}

#endif
