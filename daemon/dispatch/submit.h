/* submit.h: queues planned jobs. session/runs.c calls it, for Submit and Run. */
#ifndef KOPS_SUBMIT_H
#define KOPS_SUBMIT_H

#include "job/job.h"

/* Queues the planned job for its device, and starts what can start. Its answer is sent when it ends, perhaps
 * within this call. */
void job_submit(struct job *job);

#endif
