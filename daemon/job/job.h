/*
 * job.h: ops that a client sent in one message, from arrival to answer. Loop thread only.
 *
 *     NEW → QUEUED → RUNNING ─→ DONE
 *      │       │       ⇅   └────→ FAILED
 *      │       │     PAUSED ────→ CANCELLED  (the session gone)
 *      │       ├────→ CANCELLED  (Cancel, the session gone)
 *      │       └────→ FAILED     (deadline, shutdown, a buffer that could not be made)
 *      └→ freed: refused by its request
 *
 * A running job whose device can be had by others between two of its ops, or parts of one, is PAUSED when their
 * turn has come, and goes on later. It holds what it holds on the device meanwhile. To its client it runs.
 *
 * A job holds a reference on every buffer it names until it has ended, so a device never loses memory
 * under its hands, whatever the client does.
 */
#ifndef KOPS_JOB_H
#define KOPS_JOB_H

#include "device/autotune.h"
#include "job/buffer.h"
#include "job/scheduler.h"

struct server;
struct session;

enum job_state { JOB_NEW, JOB_QUEUED, JOB_RUNNING, JOB_PAUSED, JOB_DONE, JOB_FAILED, JOB_CANCELLED };

struct job_buffer {
	struct buffer *buffer;
	bool pin;             /* to be registered before the run */
	bool reads;           /* some op needs content from before the job */
	bool fills;           /* an op writes all of it */
	bool was_lost;        /* fills it, and it was lost before */
	uint64_t reach_bytes; /* at most so many are touched: of whole pages, of all views */
};

struct job {
	struct sched_job sched;
	struct device_work work;
	struct run run;
	bool timed;       /* as the client asked; a trial is timed, too */
	unsigned n_alike; /* autotune_alike(); planned to be a trial, if its shape is due for one; 0: not */
	struct trial trial;
	enum job_state state;
	struct server *server;
	struct session *session; /* NULL: the client has gone, nobody to answer */
	struct account *account;
	uint64_t id; /* request id */
	uint64_t arrived_ns, started_ns, deadline_ns;
	uint64_t resumed_ns;    /* last handed to its device */
	uint64_t shape;         /* marks_shape() */
	bool is_suspect;        /* such a job was at work when kopsd died: it runs alone */
	uint64_t claimed_bytes; /* host memory for pages that it is the first to touch */
	struct job *next_expiring, **prev_expiring;
	struct job *next_out;    /* of those that its device has, in order */
	struct job *next_paused; /* of those that its device holds memory for */
	struct job_buffer *buffers;
	unsigned n_buffers;
	struct run_op ops[];
};

/* States a job may go to; for tests and for the check in job.c. */
bool job_may_move(enum job_state from, enum job_state to);

/* A NEW job of n_ops for a session. NULL: out of memory. */
struct job *job_new(struct server *server, struct session *session, uint64_t id, unsigned n_ops);
/* Frees a job that is NEW or has ended. */
void job_free(struct job *job);

/* Notes that the job uses a buffer and takes a reference, once per buffer. */
struct job_buffer *job_use(struct job *job, struct buffer *buffer);

/*
 * Places the planned job on device `index` at the end of the session's queue `queue`, and starts what can
 * start. The answer goes out when it ends. KOPS_E_NOMEM: the job is still NEW.
 */
int job_submit(struct job *job, unsigned index, uint32_t queue);

/* Ends a job that is QUEUED. */
void job_end_queued(struct job *job, enum job_state state, int status, const char *why);

/* Its session has gone: ends it if QUEUED, lets it finish unanswered if RUNNING. */
void job_orphan(struct job *job);

/* Starts whatever can start on any device. */
void jobs_dispatch(struct server *server);

/* Marks those that a device has had for MARKS_LASTING_MS. Whether any is out. */
bool jobs_mark_lasting(struct server *server);

/* A PENDING buffer has become READY or FAILED. */
void jobs_buffer_settled(struct buffer *buffer);

/* Ends every queued job with KOPS_E_SHUTDOWN. */
void jobs_shut_down(struct server *server);

/* Ends the queued jobs whose deadline has passed, and arms the timer for the next. */
void jobs_expire(struct server *server);

#endif
