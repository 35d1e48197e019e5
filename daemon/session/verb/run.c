/* verb/run.c: Run: a prepared job runs, as it is or made anew. */
#include <inttypes.h>
#include <stdio.h>

#include "job/admit.h"
#include "job/prepared.h"
#include "session/runs.h"
#include "session/verbs.h"

/* From its message, as if that had come now. */
static int run_anew(struct request *r, struct prepared *p, uint64_t deadline_us)
{
	const char *refusal;
	const Kops__V1__Submit *submit;

	prepared_cool(p);
	submit = (const Kops__V1__Submit *)message_unpack(&kops__v1__submit__descriptor, p->message,
	                                                  p->message_bytes, MESSAGE_UNKNOWN_REFUSED,
	                                                  &r->session->all->arena, &refusal);
	if (!submit) { /* it was unpacked before, and packed by us */
		snprintf(r->why, sizeof r->why, "the prepared job cannot be read: %s", refusal);
		return KOPS_E_FAULT;
	}
	return runs_submit(r, submit, deadline_us ? deadline_us : submit->deadline_us, p);
}

int verb_run(struct request *r)
{
	const Kops__V1__Run run = *r->msg->run; /* the arena may be used again */
	struct prepared *p = idmap_get(&r->session->prepared, run.prepared);
	struct job *job;
	int rc;

	if (!p) {
		snprintf(r->why, sizeof r->why, "no job is prepared as %" PRIu64 "; send its Submit again",
		         run.prepared);
		return KOPS_E_NOT_FOUND;
	}
	if (p->job && p->job->state != JOB_READY) {
		snprintf(r->why, sizeof r->why, "prepared job %" PRIu64 " is still out; wait for its answer",
		         run.prepared);
		return KOPS_E_EXISTS;
	}
	rc = runs_check(r, "");
	if (rc < 0)
		return rc;
	job = prepared_ready_job(p);
	if (!job)
		return run_anew(r, p, run.deadline_us);
	rc = runs_enter(r, job, job->sched.device, run.deadline_us ? run.deadline_us : p->deadline_us);
	if (rc == 0)
		job_submit(job, job->sched.device);
	return rc;
}
