/*
 * dispatch.h: starts jobs. A device gets the next job in the scheduler's order as soon as it has room and
 * admit.h finds memory. Call it whenever jobs may have become able to start. submit.c, back.c, withdraw.c,
 * deadline.c and jobs.c do so, and sessions after they withdraw jobs.
 */
#ifndef KOPS_DISPATCH_H
#define KOPS_DISPATCH_H

#include "job/engine.h"

/* Starts all jobs that can start, on any device. */
void jobs_dispatch(struct engine *engine);

#endif
