/* back.h: a run that its device has given back, at its end or unfinished. */
#ifndef KOPS_BACK_H
#define KOPS_BACK_H

#include "job/job.h"

/* A job's work.done: device.c calls it on the loop thread. Ends or pauses the job, and starts what can start.
 */
void job_run_is_back(struct device_work *work);

#endif
