/* start.h: a job that the scheduler has picked and admit.h has equipped goes to its device. dispatch.c calls
 * it. */
#ifndef KOPS_START_H
#define KOPS_START_H

#include "job/job.h"

/* Hands the job to its device, or has the loop run it: then it may have ended, and be gone. */
void job_start(struct job *job);

#endif
