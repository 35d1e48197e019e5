/* verb/cancel.c: Cancel: withdraws a waiting job, or stops a running one where it can. */
#include <inttypes.h>
#include <stdio.h>

#include "dispatch/dispatch.h"
#include "dispatch/withdraw.h"
#include "session/reply.h"
#include "session/verbs.h"

int verb_cancel(struct request *r)
{
	uint64_t id = r->msg->cancel->job;
	struct job *job = idmap_get(&r->session->jobs, id);

	if (!job) {
		snprintf(r->why, sizeof r->why,
		         "no unanswered job has request id %" PRIu64 "; it may have finished", id);
		return KOPS_E_NOT_FOUND;
	}
	if (!job_withdraw(job)) {
		snprintf(r->why, sizeof r->why,
		         "job %" PRIu64 " is running and too short to be stopped; it will finish", id);
		return KOPS_E_BUSY;
	}
	reply_ok(r->session, r->id);
	jobs_dispatch(r->session->engine);
	return 0;
}
