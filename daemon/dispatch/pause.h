/*
 * pause.h: pauses a running job for another. dispatch.c asks after each look at a device, withdraw.c for a job
 * that nobody wants, back.c for a job that came back unfinished.
 */
#ifndef KOPS_PAUSE_H
#define KOPS_PAUSE_H

#include "job/job.h"

/* Returns true if the device's current job is one that makes way for the job that waits next. */
bool device_makes_way(const struct engine *engine, unsigned index);

/* Asks the device to pause its current job when another should run. */
void device_gives_way(struct engine *engine, unsigned index);

/* Makes a job PAUSED that came back unfinished; the scheduler starts it again. */
void job_pause(struct job *job);

#endif
