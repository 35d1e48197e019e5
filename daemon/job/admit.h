/*
 * admit.h: when jobs start, pause and go on. A device gets the next job as soon as it has room, by the
 * scheduler's order, where memory for it is there.
 */
#ifndef KOPS_ADMIT_H
#define KOPS_ADMIT_H

#include "job/job.h"

/* Sets up its timers. The engine's loop is there. */
void jobs_init(struct engine *engine);

/* Queues the planned job for its device, and starts what can start. The answer goes out when it ends, maybe
 * within this call. */
void job_submit(struct job *job);

/*
 * Nobody wants its results any more. One that is QUEUED or PAUSED ends as CANCELLED: at once, or when its
 * device has forgotten it. One that is RUNNING does so at its next pause, unless it is through before. False:
 * it cannot be paused, and runs to its end. jobs_dispatch() should follow.
 */
bool job_withdraw(struct job *job);

/* Its session has gone: the same, without an answer. */
void job_orphan(struct job *job);

/* Starts whatever can start on any device. */
void jobs_dispatch(struct engine *engine);

/* A buffer has become READY or FAILED: jobs that waited for it may start. */
void jobs_unblock(struct engine *engine);

/* Ends every queued job with KOPS_E_SHUTDOWN. */
void jobs_shut_down(struct engine *engine);

#endif
