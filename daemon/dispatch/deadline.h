/*
 * deadline.h: ends queued jobs whose deadline has passed. submit.c adds jobs with a deadline; finish.h removes
 * them when they start or end.
 */
#ifndef KOPS_DEADLINE_H
#define KOPS_DEADLINE_H

#include "job/job.h"

void deadlines_init(struct engine *engine);

/* Watches a queued job's deadline: it ends with KOPS_E_DEADLINE unless it starts before. */
void job_expires(struct job *job);

#endif
