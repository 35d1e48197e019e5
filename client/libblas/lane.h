/*
 * lane.h: the ways to kopsd: a handle each, shared memory that is used again, and jobs that are submitted
 * again.
 *
 * A lane belongs to one call at a time. There are few: what finds them all taken is computed by the next BLAS
 * beside those, so threads never wait for each other. The first lane is opened by the first large product.
 *
 *     FREE --lane_take()--> TAKEN --lane_give()--> FREE
 *                             |
 *                             +-- its call is gone: closed --> FREE
 *
 * A signal's handler may leave a call by longjmp(), or its thread may end within. The thread's next call closes
 * what it had, or the end of the thread does.
 *
 * A child of fork() finds the parent's lanes. It closes its copies of those that were free, and forgets those
 * that another thread of the parent used at that moment.
 */
#ifndef KOPS_LIBBLAS_LANE_H
#define KOPS_LIBBLAS_LANE_H

#include <stdbool.h>
#include <stdint.h>

#include "guard.h"
#include "kops.h"
#include "routine.h"

struct lane;

/* On the stack of the call that has a lane, as long as it has it. */
struct hold {
	struct guard guard; /* begun before */
	volatile uint64_t mark;
};

/*
 * A lane with an open handle; NULL and *ret_why when there is none. After a failure it says so at once for a
 * few seconds, and twice as long after each further one for which a call waited. needs_gpu: a daemon without a
 * GPU is as good as none.
 */
struct lane *lane_take(struct hold *hold, bool needs_gpu, enum outcome *ret_why);
void lane_give(struct lane *lane);

/* Whether kopsd is not left alone at the moment; else *ret_why. */
bool lane_may_be_had(enum outcome *ret_why);

/* At least so many bytes, with what was in them before; NULL: kopsd has none. Valid until the next call. */
kops_buffer *lane_memory(struct lane *lane, uint64_t bytes);

/* What makes two jobs equal, given equal memory. Zero it before use: it is compared as bytes. */
struct job_key {
	uint64_t batch, m, n, k;
	uint64_t a, b, c; /* where they lie */
	double alpha, beta;
	uint32_t dtype, shape; /* shape: transposed operands, triangles */
	uint32_t queue, unused;
};

/*
 * The job of the key in the lane's memory, to be submitted again; else an empty one, and *ret_new. NULL: no
 * memory. Jobs in different queues may run at once.
 */
kops_job *lane_job(struct lane *lane, const struct job_key *key, bool *ret_new);

/* Forgets a job that could not be filled or submitted. */
void lane_drop(struct lane *lane, kops_job *job);

/*
 * Waits for a submitted job, for limit_ms at most. A negative KOPS_E_* if it failed: its memory may then be
 * anything. A handle that is of no more use is closed then, and its memory and other jobs are gone.
 */
int lane_wait(struct lane *lane, kops_job *job, int limit_ms);
bool lane_is_open(const struct lane *lane);

#endif
