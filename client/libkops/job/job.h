/* job.h: makes, submits and ends a job. */
#ifndef KOPS_CLIENT_JOB_H
#define KOPS_CLIENT_JOB_H

#include "libkops/base/state.h"

/* Removes the job's ops, so that others can be added. The job must not be OUT. */
void client_job_reset(kops_job *job);

/* Returns an error unless the job may be submitted now. */
int client_job_may_submit(kops_job *job);

/* Sends an OUT job on the current connection: by its number if it is prepared, else whole. */
int client_job_send(kops_job *job);

/* Marks all jobs as not prepared: the connection that had them is gone. */
void client_job_unprepare(kops *k);

/* Has the daemon forget the prepared job. */
void client_job_forget_prepared(kops_job *job);

/* Returns true if both jobs have the same options and ops. */
bool client_job_is_same(const kops_job *a, const kops_job *b);

/* Handle a reply to a Submit, and an end in the ring. Return a phrase on a protocol violation. */
const char *client_job_answered(kops *k, const Kops__V1__Reply *reply);
const char *client_job_ended_by_ring(kops *k, const struct ring_end *end);

/* Moves the job to ENDED and runs its callback. why may be NULL. May free the job. */
void client_job_end(kops_job *job, int status, const char *why, const Kops__V1__Reply *reply);

/* Returns true if an unanswered job went out on this connection. */
bool client_job_is_in_flight(const kops *k);

/* Marks the jobs sent with Hello as unsent: the daemon refused the connection, so they did not run. */
void client_job_refused(kops *k);

/*
 * Handles the loss of the connection (died: by the daemon's death). Chooses the jobs to send again and dooms
 * the others.
 */
void client_job_unsend(kops *k, bool died);

/* Ends the doomed jobs. */
void client_job_end_doomed(kops *k);

/* Ends all jobs in flight now with status. */
void client_job_fail(kops *k, int status, const char *why);

/* Frees the job in any state, without a callback. */
void client_job_destroy(kops_job *job);

#endif
