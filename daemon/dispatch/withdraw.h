/*
 * withdraw.h: jobs that nobody wants any more. Cancel (session/verb/cancel.c) and the end of a session
 * (session/ending.c) withdraw them; back.c ends one that was withdrawn while it ran.
 */
#ifndef KOPS_WITHDRAW_H
#define KOPS_WITHDRAW_H

#include "job/job.h"

/*
 * Nobody wants its results any more. One that is QUEUED or PAUSED ends as CANCELLED: at once, or when its
 * device has forgotten it. One that is RUNNING does so at its next pause, unless it is through before. False:
 * it cannot be paused, and runs to its end. jobs_dispatch() should follow.
 */
bool job_withdraw(struct job *job);

/* Its session has gone: the same, without an answer. */
void job_orphan(struct job *job);

/* Ends a PAUSED job that is withdrawn: at once, unless its device has to forget it first. */
void job_abandon(struct job *job);

#endif
