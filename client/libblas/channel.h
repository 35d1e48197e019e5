/*
 * channel.h: channels to kopsd. Each has a handle, shared memory that is reused, and jobs that are submitted
 * again.
 *
 * A channel belongs to one call at a time. There are few. If all are taken, the next BLAS computes the product
 * meanwhile, so threads never wait for each other. The first large product opens the first channel.
 *
 *     FREE --channel_take()--> TAKEN --channel_give()--> FREE
 *                             |
 *                             +-- its call is gone: closed --> FREE
 *
 * A signal handler may leave a call by longjmp(), or its thread may end within it. The thread's next call, or
 * the end of the thread, closes its channel.
 *
 * A child of fork() finds the parent's channels. It closes its copies of those that were free, and forgets
 * those that another thread of the parent used at that moment.
 */
#ifndef KOPS_LIBBLAS_CHANNEL_H
#define KOPS_LIBBLAS_CHANNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "guard.h"
#include "heap/heap.h"
#include "kops.h"
#include "routine.h"

struct channel;

/* Lives on the stack of the call that has a channel, for as long. */
struct hold {
	struct guard guard; /* begun before the channel is taken */
	volatile uint64_t mark;
};

/*
 * Returns a channel with an open handle, or NULL and *ret_why. After a failure it returns NULL at once for a
 * few seconds, and for twice as long after each further failure for which a call waited. needs_gpu: a daemon
 * without a GPU does not count.
 */
struct channel *channel_take(struct hold *hold, bool needs_gpu, enum outcome *ret_why);
void channel_give(struct channel *channel);

/* Returns true if kopsd is not left alone at the moment; else sets *ret_why. */
bool channel_may_be_had(enum outcome *ret_why);

/* Returns memory of at least `bytes`, with its old content; NULL: kopsd has none. Valid until the next call. */
kops_buffer *channel_memory(struct channel *channel, uint64_t bytes);

/*
 * Returns the buffer of a block of the program's memory, which is imported if it is new. NULL: it cannot be
 * had; if kopsd cannot be reached, the handle is closed. Valid until the channel is given back, or has imported
 * 63 others.
 */
kops_buffer *channel_import(struct channel *channel, const struct heap_part *part, uint64_t wanted_bytes);

/*
 * Notes that a job of the channel may write this memory of the program; NULL: no more. If the call is left, the
 * memory becomes private (heap_keep()), so that what kopsd still writes is not seen.
 */
void channel_lend(struct channel *channel, void *memory, uint64_t bytes);

/* Must be called before a thread leaves what it does by longjmp(). */
void channel_before_jump(void);

/*
 * The key of a job: jobs of one key are equal, given equal memory. Zero it before use: keys are compared as
 * bytes.
 */
struct job_key {
	uint64_t batch, m, n, k;
	uint64_t a, b, c;                   /* offsets of the matrices */
	uint64_t a_block, b_block, c_block; /* the blocks of those that are imported; 0: the channel's memory */
	double alpha[2], beta[2];           /* real and imaginary parts */
	uint32_t dtype, shape;              /* shape: transposed and conjugated operands, triangles, ops */
	uint32_t queue, unused;
};

/*
 * Returns the job of the key in the channel's memory, to be submitted again, or an empty one and *ret_new.
 * NULL: out of memory. Jobs in different queues may run at once.
 */
kops_job *channel_job(struct channel *channel, const struct job_key *key, bool *ret_new);

/* Forgets a job that could not be filled or submitted. */
void channel_drop(struct channel *channel, kops_job *job);

/*
 * Waits for a submitted job of so many FLOPs, at most as long as a slow core would take. Returns a negative
 * KOPS_E_* if it failed; its memory is then undefined. If the handle became useless it is closed, and its
 * memory and other jobs are gone.
 */
int channel_wait(struct channel *channel, kops_job *job, double flops);
bool channel_is_open(const struct channel *channel);

#endif
