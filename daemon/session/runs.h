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

/* A job of the message, planned. Errors as of bind_job() and job_plan(). */
int runs_make(struct request *r, const Kops__V1__Submit *submit, struct job **ret_job);

/*
 * Runs a prepared job, as it is or made anew. by_ring: the run was in the ring, and has a place reserved there.
 * KOPS_E_NOT_FOUND, KOPS_E_EXISTS, or what a Submit of it would fail with.
 */
int runs_run(struct request *r, uint64_t number, uint64_t deadline_us, bool by_ring);

/* Takes a few runs out of the session's ring. KOPS_E_PROTOCOL with a reason in why. */
int runs_take(struct session *session, char why[WHY_BYTES]);

/* Makes one and queues it. prepared: whose message it is, and whose job it becomes where there is room; NULL:
 * nobody's.
 */
int runs_submit(struct request *r, const Kops__V1__Submit *submit, uint64_t deadline_us,
                struct prepared *prepared, bool by_ring);

#endif
