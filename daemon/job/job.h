/*
 * job.h: the ops that a client sent in one message, from arrival to answer. Loop thread only.
 *
 *     NEW → QUEUED → RUNNING ─→ DONE          (one that is prepared: → READY → QUEUED …; prepared.h)
 *      │       │       ⇅   └────→ FAILED
 *      │       │     PAUSED ────→ CANCELLED  (Cancel, the session gone)
 *      │       ├────→ CANCELLED  (Cancel, the session gone)
 *      │       └────→ FAILED     (deadline, shutdown, a buffer that could not be made)
 *      └→ freed: refused by its request
 *
 * A running job is PAUSED if its device can stop between two of its ops, or parts of an op, and others should
 * run. It continues later. Meanwhile it keeps its memory on the device, and its client sees it as running.
 *
 * Until it has ended, a job holds a reference to every buffer that it names. So a device never loses memory
 * that it uses, whatever the client does.
 *
 * plan.h chooses the job's device and kernels, dispatch/ starts it, finish.h ends it.
 */
#ifndef KOPS_JOB_H
#define KOPS_JOB_H

#include "base/idmap.h"
#include "job/engine.h"
#include "job/uses.h"
#include "share/scheduler.h"

struct prepared;
struct session;
struct spread;

enum job_state { JOB_NEW, JOB_READY, JOB_QUEUED, JOB_RUNNING, JOB_PAUSED, JOB_DONE, JOB_FAILED, JOB_CANCELLED };

/* The queues of a session. */
struct job_queues {
	struct idmap by_id;     /* id → struct job_queue */
	struct job_queue *idle; /* the queue without jobs; NULL: none */
};

/* An in-order queue. It is freed when it has no jobs and another queue of its session becomes idle. */
struct job_queue {
	struct sched_queue sched;
	struct job_queues *queues; /* NULL: the session has ended */
	uint32_t id;
	unsigned jobs;
};

struct job {
	struct sched_job sched;
	struct device_work work;
	struct run run;
	struct spread *spread; /* its tiles on several devices (spread.h); NULL: it has none */
	void (*free_spread)(struct spread *spread);
	void (*tile_done)(struct device_work *work); /* for their work, as work.done for the job's */
	bool is_spread;                              /* since its start: they run instead of `run` */
	unsigned not_over; /* over so many devices, or fewer, spreading it does not pay */
	unsigned n_alike;  /* learned_alike(): planned as a trial if its shape is due for one; 0: never */
	struct trial trial;
	/* Of a settled shape: what such jobs took on trial, 0: unknown; whether this one had the device for
	 * itself; whether its last run was slow; runs since learned_note(). */
	double usual_us;
	bool began_alone, was_slow;
	unsigned unnoted;
	bool settled; /* trials and first launches of its shape are over: the next such job runs the same
	                 kernels */
	enum job_state state;
	struct engine *engine;
	struct account *account;
	uint64_t id; /* request id */
	/* Called once when the job ends; NULL if the client has gone. The members below are the caller's. */
	void (*answer)(struct job *job, int status, const char *why);
	struct session *session;
	bool is_withdrawn;   /* nobody wants its results: it stops where it can pause */
	bool by_ring;        /* it came by the ring, where its receipt has a reserved entry */
	struct usage *usage; /* of its session; NULL: the session has ended */
	uint64_t arrived_ns, started_ns, ended_ns, deadline_ns;
	uint64_t resumed_ns;       /* last handed to its device */
	uint32_t pauses;           /* in which the device started other jobs, */
	double paused_us;          /* for how long in all, */
	uint64_t paused_ns;        /* when it was paused last, */
	uint64_t starts_before;    /* and the device's number of starts then */
	struct cost cost;          /* of all ops */
	uint64_t shape;            /* marks_shape() */
	bool has_choice;           /* several devices may run it */
	bool is_suspect;           /* such a job was running when kopsd died: it runs alone */
	struct prepared *prepared; /* the job becomes READY when it ends; NULL: it is freed */
	uint64_t number;           /* the number that its message was kept under; 0: it was not */
	size_t bytes;              /* size of this struct, ops included */
	struct list_link expiring; /* in engine.expiring, while it is QUEUED and has a deadline */
	struct list_link waiting;  /* in its first PENDING buffer's list, while it is blocked */
	struct list_link out;      /* in its device's list, while it is RUNNING */
	struct list_link paused;   /* in its device's list, while it is PAUSED */
	struct uses uses;
	struct run_op ops[];
};

/* Returns true if the diagram above allows the move. */
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

/* Call it when the job no longer runs: other jobs may start if it was the suspect. */
static inline void job_no_longer_alone(const struct job *job)
{
	if (job->engine->suspect == job)
		job->engine->suspect = NULL;
}

/* Ends the daemon, because a move that is not allowed is a bug. */
void job_refuse_move(const struct job *job, enum job_state to) __attribute__((noreturn, cold));

static inline void job_move(struct job *job, enum job_state to)
{
	if (!job_may_move(job->state, to))
		job_refuse_move(job, to);
	job->state = to;
}

/* Makes a NEW job of n_ops with up to n_views, in the user's queue of this id; creates the queue if needed.
 * NULL: out of memory. */
struct job *job_new(struct engine *engine, struct account *account, struct job_queues *queues, uint32_t queue,
                    unsigned n_ops, size_t n_views);
/* Frees a job that is NEW or READY, or has ended. */
void job_free(struct job *job);
/* Call it when the session of these queues ends. Their jobs may still run. */
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
