/*
 * workers.h: threads for memory and for closing descriptors, which the loop and the devices never wait for.
 *
 * A task is done in turns of a millisecond, and users share the threads by the time that these take
 * (scheduler.h): whoever asks for 12 GiB delays nobody who asks for 64 KiB. Where another user's task waits, a
 * turn ends after the step at hand. The threads that there have to be are started with the daemon, so that a
 * limit on threads or address space is a sentence then.
 *
 *     IDLE → WAITING ⇄ WORKING → IDLE (done() is called)
 */
#ifndef KOPS_WORKERS_H
#define KOPS_WORKERS_H

#include <uv.h>

#include "kernel.h"
#include "share/scheduler.h"

struct workers;

/* What a step should do, in bytes of memory made or zeroed, or unmade: about 0.1 ms. */
#define WORKERS_PIECE_BYTES  (256ull << 10)
#define WORKERS_UNMAKE_BYTES (4ull << 20)

/* Whose time it takes: a user's tasks go round, turn by turn. */
struct task_flow {
	struct sched_flow flow;
	struct sched_queue queue;
};

struct task {
	/* On a worker thread: a step. True: that was the last one. Alone at the task while it works. */
	bool (*step)(struct task *task);
	/*
	 * Instead of step, on the loop thread: hands the whole to somebody else, who calls workers_begun_done()
	 * on the loop thread when it is through.
	 */
	void (*begin)(struct task *task);
	/* On the loop thread, at the end; also of one that was cancelled. The task may be submitted again. */
	void (*done)(struct task *task);
	bool cancelled; /* before it was through */
	/* private */
	struct workers *workers;
	struct sched_job sched;
	struct task_flow *flow;
	struct list_link link; /* on its way to a thread or back */
	bool waiting, through;
	bool yields; /* atomic: its turn ends after this step */
	uint64_t began_ns;
};

#define WORKERS_MAX 16u /* threads */

/*
 * One thread for so many CPUs, since the others are for jobs and their clients; 1 to 4. Four zero memory about
 * as fast as it can be.
 */
unsigned workers_by_cpus(unsigned cpus_each);

/*
 * Starts so many threads, and later up to `most` (WORKERS_MAX) while all are at work. KOPS_E_NOMEM,
 * KOPS_E_SYSTEM with a sentence in why.
 */
int workers_start(uv_loop_t *loop, unsigned threads, unsigned most, struct workers **ret_workers,
                  char why[WHY_BYTES]);

/* Stops the threads. No task may be out. NULL allowed. The loop must run once more. */
void workers_stop(struct workers *workers);

/* Its step or begin, and done, are set. flow: whose time it takes. */
void workers_submit(struct workers *workers, struct task_flow *flow, struct task *task);

/* Ends it with `cancelled` set: at once, within this call, where it waits; else after the step at hand, if
 * that is not the last. Nothing where it is IDLE. */
void workers_cancel(struct task *task);

/* It is IDLE again, as if it had never been submitted. False: it was begun, or is IDLE. */
bool workers_withdraw(struct task *task);

/* A task that begin() handed over is through. */
void workers_begun_done(struct task *task);

bool workers_are_busy(const struct workers *workers);

/* For sched_flow_is_ahead(). */
const struct sched *workers_sched(const struct workers *workers);

#endif
