/* finish.h: ends jobs: answers the client, releases what the job held, notes what it showed. */
#ifndef KOPS_FINISH_H
#define KOPS_FINISH_H

#include "job/job.h"

/* Answers the client when the device has finished the job, or it failed. job_finish() must follow. */
void job_answer(struct job *job);
/* Frees the job, or makes it READY. */
void job_finish(struct job *job);

/* Ends a QUEUED job that was cancelled, has expired, or lost a buffer. Frees the job, or makes it READY. */
void job_end_queued(struct job *job, enum job_state state, int status, const char *why);

/* Ends a PAUSED job that is withdrawn, when the device has released it. Frees the job, or makes it READY. */
void job_end_paused(struct job *job);

/* Stops watching the job's deadline, when it starts or ends. */
void job_expires_not(struct job *job);

#endif
