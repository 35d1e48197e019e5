/* verb/forget.c: Forget: frees a prepared job. */
#include <inttypes.h>
#include <stdio.h>

#include "job/prepared.h"
#include "session/reply.h"
#include "session/verbs.h"

int verb_forget(struct request *r)
{
	struct prepared *p = idmap_get(&r->session->prepared, r->msg->forget->prepared);

	if (!p) {
		snprintf(r->why, sizeof r->why, "no job is prepared as %" PRIu64, r->msg->forget->prepared);
		return KOPS_E_NOT_FOUND;
	}
	prepared_forget(p);
	reply_ok(r->session, r->id);
	return 0;
}
