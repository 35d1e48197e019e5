/* verb/cancel.c: Cancel: a job that has not started is withdrawn. */
#include <inttypes.h>
#include <stdio.h>

#include "job/admit.h"
#include "job/finish.h"
#include "session/reply.h"
#include "session/verbs.h"

int verb_cancel(struct request *r)
{
	uint64_t id = r->msg->cancel->job;
	struct job *job = idmap_get(&r->session->jobs, id);

	if (!job) {
		snprintf(r->why, sizeof r->why, "no job with request id %" PRIu64 " is out; it may have ended",
		         id);
		return KOPS_E_NOT_FOUND;
	}
	if (job->state != JOB_QUEUED) {
		snprintf(r->why, sizeof r->why, "job %" PRIu64 " runs already and will finish", id);
		return KOPS_E_BUSY;
	}
	job_end_queued(job, JOB_CANCELLED, KOPS_E_CANCELLED, NULL);
	reply_ok(r->session, r->id);
	jobs_dispatch(r->session->engine);
	return 0;
}
