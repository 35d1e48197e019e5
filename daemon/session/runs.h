/*
 * runs.h: what Submit and Run have in common: the limits before a job is made or found, and how it gets into
 * its session and out again.
 */
#ifndef KOPS_RUNS_H
#define KOPS_RUNS_H

#include "job/job.h"
#include "session/verbs.h"

/*
 * Makes a job of r->making.submit, binds it to its buffers, plans it and calls r->making.finish; by further
 * steps where the job is long. Its message is kept first, where it asks for that. KOPS_E_SHUTDOWN,
 * KOPS_E_EXISTS (the request id is in use), KOPS_E_BUSY, with a sentence in r->why: before any work, and again
 * before it is planned in a later step. KOPS_E_QUOTA: its message cannot be kept, and it is not to run. Else
 * errors as of bind_ops() and job_plan().
 */
int runs_make(struct request *r);

/* A finish: the job goes into its session and is queued. KOPS_E_BUSY with a sentence, KOPS_E_NOMEM. */
int runs_submit(struct request *r);

/* Frees what was made so far. */
void runs_unmake(struct request *r);

/*
 * Runs a prepared job, as it is or, by further steps, made anew. KOPS_E_NOT_FOUND, KOPS_E_EXISTS, or what a
 * Submit of it would fail with.
 */
int runs_run(struct request *r, uint64_t number, uint64_t deadline_us);

#endif
