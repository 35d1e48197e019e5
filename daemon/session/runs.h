/*
 * runs.h: what Submit and Run have in common: the limits before a job is made or found, and how it gets into
 * its session and out again.
 */
#ifndef KOPS_RUNS_H
#define KOPS_RUNS_H

#include "job/job.h"
#include "session/verbs.h"

/*
 * Before the work of finding out what the job is. wanted: the device it may go to, "" for any. KOPS_E_SHUTDOWN,
 * KOPS_E_EXISTS (the request id is in use), KOPS_E_BUSY, with a sentence in r->why.
 */
int runs_check(struct request *r, const char *wanted);

/* A job of more ops is long: it is made in several steps, for which others should not have to wait. */
#define RUNS_SHORT_OPS 8

static inline bool runs_are_long(const Kops__V1__Submit *submit)
{
	return submit->n_ops > RUNS_SHORT_OPS;
}

/*
 * A step: makes a job of r->making.submit, binds it to its buffers, plans it and calls r->making.finish, in one
 * further step where the job is long. Errors as of bind_job() and job_plan(); in the latter step also as of
 * runs_check(), whose limits may have been reached meanwhile.
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
