/* finish.h: the end of a job: its client is answered, what it held is given back, what it showed is noted. */
#ifndef KOPS_FINISH_H
#define KOPS_FINISH_H

#include "job/job.h"

/* Its device is through with it, at its end or by a failure: its client is answered. job_finish() follows. */
void job_answer(struct job *job);
/* Frees the job, or makes it READY. */
void job_finish(struct job *job);

/* Ends a job that is QUEUED: cancelled, expired, spoiled by a buffer. Frees the job, or makes it READY. */
void job_end_queued(struct job *job, enum job_state state, int status, const char *why);

/* Ends a PAUSED job that is withdrawn, once the device has forgotten it. Frees the job, or makes it READY. */
void job_end_paused(struct job *job);

/* It starts, or ends: its deadline is of no interest any more. */
void job_expires_not(struct job *job);

#endif
