/* start.h: starts a job that the scheduler chose and admit.h gave its memory. dispatch.c calls it. */
#ifndef KOPS_START_H
#define KOPS_START_H

#include "job/job.h"

/* Hands the job to its device, or runs it on the loop; then it may have ended and been freed. */
void job_start(struct job *job);

#endif
