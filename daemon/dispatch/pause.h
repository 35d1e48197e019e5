/*
 * pause.h: pauses a running job for another. dispatch.c asks after each look at a device, withdraw.c for a job
 * that nobody wants, back.c for a job that came back unfinished.
 */
#ifndef KOPS_PAUSE_H
#define KOPS_PAUSE_H

#include "job/job.h"

/* Asks the device to pause its current job when another should run. */
void device_gives_way(struct engine *engine, unsigned index);

/* Makes a job PAUSED that came back unfinished; the scheduler starts it again. */
void job_pause(struct job *job);

#endif
