/*
 * workers.h: threads that allocate memory and close descriptors, so that neither the loop nor devices wait.
 *
 * A task works for a millisecond at a time, and users share the threads by that time (scheduler.h). So a user
 * who asks for 12 GiB does not delay one who asks for 64 KiB. If another user's task waits, a task stops after
 * its current step. The minimum of threads starts with the daemon, so limits on threads or address space show
 * as an error at the start.
 *
 *     IDLE → WAITING ⇄ WORKING → IDLE (done() is called)
 */
#ifndef KOPS_WORKERS_H
#define KOPS_WORKERS_H

#include <uv.h>

#include "kernel.h"
#include "share/scheduler.h"

struct workers;

/* The most that a step should make or zero, or unmake, in bytes: about 0.1 ms. */
#define WORKERS_PIECE_BYTES  (256ull << 10)
#define WORKERS_UNMAKE_BYTES (4ull << 20)

/* The tasks of one user, who is charged for their time. */
struct task_flow {
	struct sched_flow flow;
	struct sched_queue queue;
};

struct task {
	/* Does a step, on a worker thread. Returns true after the last one. Nothing else uses the task
	 * meanwhile. */
	bool (*step)(struct task *task);
	/*
	 * Called on the loop thread instead of step: hands the whole task to another component. That calls
	 * workers_begun_done() on the loop thread when the task is done.
	 */
	void (*begin)(struct task *task);
	/* Called on the loop thread at the end, also if the task was cancelled. The task may be submitted
	 * again. */
	void (*done)(struct task *task);
	bool cancelled; /* before it was done */
	/* private */
	struct workers *workers;
	struct sched_job sched;
	struct task_flow *flow;
	struct list_link link; /* in the inbox or outbox */
	bool waiting, through;
	bool yields; /* atomic: stop after this step */
	uint64_t began_ns;
};

#define WORKERS_MAX 16u /* threads */

/*
 * Returns the number of threads: one for each cpus_each CPUs, since the others are for jobs and clients; 1 to
 * 4. Four zero memory at nearly the highest rate.
 */
unsigned workers_by_cpus(unsigned cpus_each);

/*
 * Starts `threads` threads, and later up to `most` (at most WORKERS_MAX) when all are at work. KOPS_E_NOMEM,
 * KOPS_E_SYSTEM with a sentence in why.
 */
int workers_start(uv_loop_t *loop, unsigned threads, unsigned most, struct workers **ret_workers,
                  char why[WHY_BYTES]);

/* Stops the threads. No task may be queued. NULL allowed. The loop must run once more. */
void workers_stop(struct workers *workers);

/* Queues a task whose done and step or begin are set. flow: the user that is charged for it. */
void workers_submit(struct workers *workers, struct task_flow *flow, struct task *task);

/* Ends a task with `cancelled` set: within this call if it waits, else after its current step unless that is
 * the last. Does nothing if it is IDLE. */
void workers_cancel(struct task *task);

/* Makes a waiting task IDLE, as if it was never submitted. Returns false if it was begun or is IDLE. */
bool workers_withdraw(struct task *task);

/* Call it when a task that begin() handed over is done. */
void workers_begun_done(struct task *task);

bool workers_are_busy(const struct workers *workers);

/* For sched_flow_is_ahead(). */
const struct sched *workers_sched(const struct workers *workers);

#endif
