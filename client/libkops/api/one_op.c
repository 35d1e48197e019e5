/*
 * one_op.c: one-op calls: build, submit, wait. The handle keeps the jobs of the last few, so a call that comes
 * again with the same arguments is a job that is submitted again, and the daemon has it prepared.
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

/* Its place among those of late; NULL: it is new. */
static kops_job **find_same(kops *k, const kops_job *job)
{
	for (unsigned i = 0; i < CLIENT_ONE_OPS; i++)
		if (k->one_ops[i] && client_job_is_same(k->one_ops[i], job))
			return &k->one_ops[i];
	return NULL;
}

/* The new job takes the place of the one that was taken up first. */
static kops_job **keep(kops *k)
{
	kops_job **place = &k->one_ops[k->one_ops_next++ % CLIENT_ONE_OPS], *old = *place;
	*place = k->one_op;
	k->one_op = old;
	return place;
}

/* A job that is out after its time was cancelled: it is left to end alone, and the next call makes another. */
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
