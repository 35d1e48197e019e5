/*
 * deadline.h: queued jobs end when their deadline has passed. submit.c adds each that has one; it is taken out
 * by finish.h when it starts or ends.
 */
#ifndef KOPS_DEADLINE_H
#define KOPS_DEADLINE_H

#include "job/job.h"

void deadlines_init(struct engine *engine);

/* The queued job has a deadline: it ends as KOPS_E_DEADLINE unless it starts before. */
void job_expires(struct job *job);

#endif
