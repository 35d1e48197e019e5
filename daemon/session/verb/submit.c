/* verb/submit.c: Submit: checks a job, binds it to its buffers, plans it and queues it, or prepares it for
 * Run. */
#include <stdio.h>

#include "base/clock.h"
#include "job/prepared.h"
#include "session/reply.h"
#include "session/runs.h"
#include "session/verbs.h"

static int check_submit(struct request *r, const Kops__V1__Submit *submit)
{
	if (submit->n_ops < 1) { /* too many ops are a violation */
		snprintf(r->why, sizeof r->why, "the job has no ops; give it 1 to %d", MESSAGE_OPS_MAX);
		return KOPS_E_INVALID;
	}
	if ((unsigned)submit->priority > KOPS_LOW) {
		snprintf(r->why, sizeof r->why, "priority %u is out of range (0 to %d)",
		         (unsigned)submit->priority, KOPS_LOW);
		return KOPS_E_INVALID;
	}
	if (submit->only_prepare && !submit->prepare) {
		snprintf(r->why, sizeof r->why,
		         "only_prepare requires prepare, the number of the prepared job");
		return KOPS_E_INVALID;
	}
	return 0;
}

/* Answers with the plan, without running the job. */
static int keep_only(struct request *r)
{
	struct job *job = r->making.job;

	job->id = r->id;
	job->session = r->session;
	job->arrived_ns = job->started_ns = job->ended_ns = clock_ns();
	job->settled = true;
	if (!prepared_take(r->making.prepared, job)) {
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
	int rc = check_submit(r, submit);

	if (rc < 0)
		return rc;
	r->making = (struct making){.submit = submit,
	                            .deadline_us = submit->deadline_us,
	                            .finish = submit->only_prepare ? keep_only : runs_submit};
	return runs_make(r);
}
