/* submit.h: planned jobs join the scheduler. session/runs.c calls it, for Submit and Run. */
#ifndef KOPS_SUBMIT_H
#define KOPS_SUBMIT_H

#include "job/job.h"

/* Queues the planned job for its device, and starts what can start. The answer goes out when it ends, maybe
 * within this call. */
void job_submit(struct job *job);

#endif
