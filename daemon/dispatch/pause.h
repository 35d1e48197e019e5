/*
 * pause.h: when a running job gives way to another. dispatch.c asks after each look at a device, withdraw.c for
 * a job that nobody wants any more, back.c for a job that has come back unfinished.
 */
#ifndef KOPS_PAUSE_H
#define KOPS_PAUSE_H

#include "job/job.h"

/* Asks the device for a pause of the job that it is at, by when another's turn has come. */
void device_gives_way(struct engine *engine, unsigned index);

/* The job has come back unfinished: it is PAUSED, and waits for its next turn. */
void job_pause(struct job *job);

#endif
