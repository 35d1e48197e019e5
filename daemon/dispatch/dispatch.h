/*
 * dispatch.h: which job starts. A device gets the next job as soon as it has room, in the scheduler's order,
 * where admit.h finds memory for it. It is called whenever something may have become able to start: by
 * submit.c, back.c, withdraw.c, deadline.c and jobs.c, and by sessions after they have withdrawn jobs.
 */
#ifndef KOPS_DISPATCH_H
#define KOPS_DISPATCH_H

#include "job/engine.h"

/* Starts whatever can start on any device. */
void jobs_dispatch(struct engine *engine);

#endif
