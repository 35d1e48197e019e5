/*
 * lasting.h: jobs that are at work for long: their marks (marks.h), and what is left of them. start.c tells of
 * each job that starts; a timer looks while any is out.
 */
#ifndef KOPS_LASTING_H
#define KOPS_LASTING_H

#include "job/job.h"

void lasting_init(struct engine *engine);

/* Whether the job, which has started, has been there for so long. */
bool job_is_lasting(const struct job *job, uint64_t now);

/* A job is out. */
void lasting_watch(struct engine *engine);

#endif
