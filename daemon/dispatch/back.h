/* back.h: handles runs that a device has returned, ended or paused. */
#ifndef KOPS_BACK_H
#define KOPS_BACK_H

#include "job/job.h"

/* A job's work.done, called on the loop thread by device.c. Ends or pauses the job, and starts others that can
 * start. */
void job_run_is_back(struct device_work *work);

/* The same for a tile of a job that is spread. The last one's return is the job's. */
void job_tile_is_back(struct device_work *work);

#endif
