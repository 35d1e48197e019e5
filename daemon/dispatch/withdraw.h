/*
 * withdraw.h: ends jobs that nobody wants. Cancel (session/verb/cancel.c) and the end of a session
 * (session/ending.c) withdraw them; back.c ends a job that was withdrawn while it ran.
 */
#ifndef KOPS_WITHDRAW_H
#define KOPS_WITHDRAW_H

#include "job/job.h"

/*
 * Withdraws a job. One that is QUEUED or PAUSED ends as CANCELLED, at once or when its device has released it.
 * One that is RUNNING does so at its next pause, unless it ends before. Returns false if it cannot be paused,
 * and runs to its end. Call jobs_dispatch() afterwards.
 */
bool job_withdraw(struct job *job);

/* The same when its session has ended, without an answer. */
void job_orphan(struct job *job);

/* Ends a PAUSED job that is withdrawn, at once or when its device has released it. */
void job_abandon(struct job *job);

#endif
