/*
 * threads.h: how kopsd's threads start, and the pool of threads behind the CPU kernels and libkops-blas's
 * copies. Its workers start with the first large op and sleep in between: an idle process has no wake-ups. One
 * user at a time has the pool; another one runs its parts by itself.
 */
#ifndef KOPS_THREADS_H
#define KOPS_THREADS_H

#include <pthread.h>
#include <stdint.h>

/*
 * pthread_create() of a thread that takes none of the signals that processes are sent. Those go to the threads
 * that the program has for them, never to one that begins or ends, and never interrupt work. The signals of a
 * thread's own faults stay as they are.
 */
int threads_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *arg), void *arg);

/* How many threads an op may use, the calling one included; 0 counts as 1. Not while parts run. */
void threads_set(unsigned n);
unsigned threads_count(void);

/* Ends the workers and waits for them. The next threads_run() starts new ones. */
void threads_stop(void);

/* In a child of fork(), which has none of its parent's workers: the next threads_run() starts new ones. */
void threads_forget(void);

/*
 * How many parts a job of `work` units is worth when a part should have at least `grain`: 1 to
 * 4 * threads_count(), or 1 for a single thread.
 */
unsigned threads_parts(uint64_t work, uint64_t grain);

/* The bounds of part `part` of `n_parts` of [0, work). */
static inline uint64_t threads_bound(uint64_t work, unsigned part, unsigned n_parts)
{
	return work / n_parts * part + (work % n_parts < part ? work % n_parts : part);
}

/*
 * Calls fn(ctx, part) for each part in [0, n_parts), on any thread and in any order, and returns when all are
 * done. What the caller wrote before is visible in fn, and what fn wrote is visible after. With one part
 * it is a plain call. If workers cannot be started the caller does all the work.
 */
void threads_run(unsigned n_parts, void (*fn)(void *ctx, unsigned part), void *ctx);

#endif
