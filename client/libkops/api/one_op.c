/*
 * one_op.c: one-op calls: build, submit, wait. The handle keeps the last few jobs, so a call with the same
 * arguments submits an old job again, which the daemon has prepared.
 */
#include "libkops/api/one_op.h"
#include "libkops/job/job.h"
#include "libkops/wire/link.h"

int client_one_op_begin(kops *k, kops_job **ret_job)
{
	int status = client_may_wait(k);
	if (status < 0)
		return status;
	if (!k->one_op) {
		status = kops_job_new(k, NULL, &k->one_op);
		if (status < 0)
			return status;
	}
	client_job_reset(k->one_op);
	*ret_job = k->one_op;
	return 0;
}

/* Returns the place of an equal job among those kept; NULL if there is none. */
static kops_job **find_same(kops *k, const kops_job *job)
{
	for (unsigned i = 0; i < CLIENT_ONE_OPS; i++)
		if (k->one_ops[i] && client_job_is_same(k->one_ops[i], job))
			return &k->one_ops[i];
	return NULL;
}

/* Keeps the new job in place of the oldest one. */
static kops_job **keep(kops *k)
{
	kops_job **place = &k->one_ops[k->one_ops_next++ % CLIENT_ONE_OPS], *old = *place;
	*place = k->one_op;
	k->one_op = old;
	return place;
}

/* A job that timed out was cancelled: it ends by itself, and the next call makes another. */
int client_one_op_finish(kops *k, int status)
{
	kops_job **place;
	if (status < 0)
		return status;
	place = find_same(k, k->one_op);
	if (!place)
		place = keep(k);
	status = kops_run(*place);
	if (kops_job_is_out(*place)) {
		kops_job *job = *place;
		*place = NULL;
		kops_job_free(job);
	}
	return status;
}
