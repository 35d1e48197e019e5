/*
 * admit.h: whether there is memory for the job that is next, on its device and on the host. dispatch.c asks
 * before the scheduler starts it.
 */
#ifndef KOPS_ADMIT_H
#define KOPS_ADMIT_H

#include "job/job.h"

/* Has the jobs that are out claim their memory where it becomes short (engine.memory_is_short). */
void admit_init(struct engine *engine);

/*
 * The QUEUED job that is next, equipped with what it starts with; or a paused one that goes before it; or NULL.
 * A job whose deadline has passed, or that can never start, ends instead.
 */
struct job *job_admit(struct engine *engine, struct job *job);

#endif
