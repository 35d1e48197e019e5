/*
 * admit.h: checks that the device and the host have memory for the next job. dispatch.c asks before the
 * scheduler starts it.
 */
#ifndef KOPS_ADMIT_H
#define KOPS_ADMIT_H

#include "job/job.h"

/* Sets engine.memory_is_short, which makes running jobs claim their memory. */
void admit_init(struct engine *engine);

/*
 * Returns the job to start: this QUEUED job, with its memory; or a paused job that goes first; or NULL. A job
 * whose deadline has passed, or that can never start, ends instead.
 */
struct job *job_admit(struct engine *engine, struct job *job);

#endif
