/*
 * threads.h: starts kopsd's threads, and runs the pool of threads behind the CPU kernels and libkops-blas's
 * copies. Workers start with the first large op and sleep in between: an idle process never wakes up. One user
 * at a time has the pool; others run their parts alone.
 */
#ifndef KOPS_THREADS_H
#define KOPS_THREADS_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Does pthread_create() for a thread that blocks all signals sent to the process. Those go to the program's
 * threads for them, and never interrupt work or reach a thread that begins or ends. Signals of the thread's own
 * faults stay unblocked.
 */
static inline int threads_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *arg),
                                 void *arg)
{
	static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
	sigset_t sent, before;
	int rc;

	sigfillset(&sent);
	for (unsigned i = 0; i < sizeof own / sizeof own[0]; i++)
		sigdelset(&sent, own[i]);
	pthread_sigmask(SIG_BLOCK, &sent, &before); /* a thread begins with its creator's mask */
	rc = pthread_create(thread, attributes, fn, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

/*
 * Sets how many threads an op may use, including the calling one; 0 counts as 1. Must not be called while parts
 * run.
 */
void threads_set(unsigned n);
unsigned threads_count(void);

/*
 * While it is set, the calling thread computes all parts of its ops itself. They are the same parts, and so
 * give the same bits. Returns the setting before.
 */
bool threads_set_alone(bool alone);

/* Ends the workers and waits for them. The next threads_run() starts new ones. */
void threads_stop(void);

/* Forgets the parent's workers in a child of fork(). The next threads_run() starts new ones. */
void threads_forget(void);

/*
 * Returns how many parts to make of a job of `work` units if a part should have at least `grain`: 1 to 4 *
 * threads_count(), or 1 for a single thread.
 */
unsigned threads_parts(uint64_t work, uint64_t grain);

/* Returns where part `part` of `n_parts` of [0, work) begins. */
static inline uint64_t threads_bound(uint64_t work, unsigned part, unsigned n_parts)
{
	return work / n_parts * part + (work % n_parts < part ? work % n_parts : part);
}

/*
 * Calls fn(ctx, part) for each part in [0, n_parts), on any thread and in any order, and returns when all are
 * done. fn sees what the caller wrote before, and the caller sees what fn wrote. With one part it is a plain
 * call. If workers cannot be started, the caller does all the work.
 */
void threads_run(unsigned n_parts, void (*fn)(void *ctx, unsigned part), void *ctx);

#endif
