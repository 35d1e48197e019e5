/* verb/submit.c: Submit: a job is checked, bound to its buffers, planned and queued; or prepared for Run. */
#include <stdio.h>

#include "clock.h"
#include "job/prepared.h"
#include "session/reply.h"
#include "session/runs.h"
#include "session/verbs.h"

static int check_submit(struct request *r, const Kops__V1__Submit *submit)
{
	if (submit->n_ops < 1 || submit->n_ops > MESSAGE_OPS_MAX || (unsigned)submit->priority > KOPS_LOW) {
		snprintf(r->why, sizeof r->why, "a job has 1 to %d ops and a priority of 0 to %d",
		         MESSAGE_OPS_MAX, KOPS_LOW);
		return KOPS_E_INVALID;
	}
	return runs_check(r, submit->device);
}

/* Answers with what was planned. */
static int prepare_only(struct request *r, const Kops__V1__Submit *submit, struct prepared *prepared)
{
	struct job *job;
	int rc = runs_make(r, submit, &job);

	if (rc < 0)
		return rc;
	job->id = r->id;
	job->session = r->session;
	job->arrived_ns = job->started_ns = job->ended_ns = clock_ns();
	job->settled = true;
	if (!prepared_take(prepared, job)) {
		job_free(job);
		prepared_explain(r->session->engine, r->session->account, r->why);
		return KOPS_E_QUOTA;
	}
	reply_receipt(job);
	job->started_ns = 0;
	job_move(job, JOB_READY);
	return 0;
}

int verb_submit(struct request *r)
{
	const Kops__V1__Submit *submit = r->msg->submit;
	struct session *s = r->session;
	struct prepared *prepared = NULL;
	int rc = check_submit(r, submit);

	if (rc < 0)
		return rc;
	if (submit->prepare)
		rc = prepared_new(s->engine, s->account, &s->prepared, submit->prepare, submit, &prepared,
		                  r->why);
	if (submit->only_prepare && rc == 0)
		rc = prepare_only(r, submit, prepared);
	else if (!submit->only_prepare) /* where it cannot be kept it runs */
		rc = runs_submit(r, submit, submit->deadline_us, prepared, false);
	if (rc < 0 && prepared)
		prepared_forget(prepared);
	return rc;
}
