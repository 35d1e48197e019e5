/*
 * lasting.h: jobs that run for long: sets their marks (marks.h) and updates their time left. A timer checks
 * them while any is in flight.
 */
#ifndef KOPS_LASTING_H
#define KOPS_LASTING_H

#include "job/job.h"

void lasting_init(struct engine *engine);

/* Returns true if a started job has run for MARKS_LASTING_MS. */
bool job_is_lasting(const struct job *job, uint64_t now);

/* Starts the timer. Call it when a job starts. */
void lasting_watch(struct engine *engine);

#endif
