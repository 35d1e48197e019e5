/*
 * runs.h: shared by Submit and Run: the limits before a job is made or found, and its way into its session and
 * out.
 */
#ifndef KOPS_RUNS_H
#define KOPS_RUNS_H

#include "job/job.h"
#include "session/verbs.h"

/*
 * Makes a job of r->making.submit, binds it to its buffers, plans it and calls r->making.finish, in steps if
 * the job is long. Keeps the message first if the message asks for that.
 *
 * KOPS_E_SHUTDOWN, KOPS_E_EXISTS (the request id is in use) or KOPS_E_BUSY, with a sentence in r->why, is
 * checked before any work, and again before a later step plans the job. KOPS_E_QUOTA: the message cannot be
 * kept, and the job should not run without. Other errors: see bind_ops() and job_plan().
 */
int runs_make(struct request *r);

/* For making.finish: adds the job to its session and queues it. KOPS_E_BUSY with a sentence, KOPS_E_NOMEM. */
int runs_submit(struct request *r);

/* Frees what was made so far. */
void runs_unmake(struct request *r);

/*
 * Runs a prepared job as it is, or makes it again in steps. KOPS_E_NOT_FOUND, KOPS_E_EXISTS, or an error of its
 * Submit.
 */
int runs_run(struct request *r, uint64_t number, uint64_t deadline_us);

#endif
