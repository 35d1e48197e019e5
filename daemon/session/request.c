#include "session/request.h"

#include <inttypes.h>
#include <stdio.h>

#include "clock.h"
#include "log.h"
#include "message.h"
#include "session/reply.h"
#include "session/verbs.h"
#include "status.h"

static const struct verb {
	const char *name;
	int (*handle)(struct request *r);
	enum session_state state; /* where it is allowed */
	unsigned fds_max;
} verbs[] = {
#define X(name, NAME, function, state, fds_max)                                                                \
	[KOPS__V1__REQUEST__BODY_##NAME] = {#name, function, state, fds_max},
#include "session/verbs.def"
#undef X
};

static int perform(struct request *r, char why[WHY_BYTES])
{
	unsigned c = (unsigned)r->msg->body_case;
	const struct verb *verb = c < sizeof verbs / sizeof verbs[0] && verbs[c].handle ? &verbs[c] : NULL;
	int rc;

	if (!verb) {
		snprintf(why, WHY_BYTES, "a request without a verb");
		return KOPS_E_PROTOCOL;
	}
	if (verb->state != r->session->state) {
		snprintf(why, WHY_BYTES, "%s %s Hello", verb->name,
		         verb->state == SESSION_OPEN ? "before" : "after another");
		return KOPS_E_PROTOCOL;
	}
	if (r->n_fds > verb->fds_max) {
		snprintf(why, WHY_BYTES, "%s with %u descriptors", verb->name, r->n_fds);
		return KOPS_E_PROTOCOL;
	}
	rc = verb->handle(r);
	if (rc == 0)
		return 0;
	log_debug("session %" PRIu64 " request %" PRIu64 ": %s: %s: %s", r->session->serial, r->id, verb->name,
	          status_name(rc), r->why[0] ? r->why : status_text(rc));
	reply_error(r->session, r->id, rc, r->why, r->retry_after_us);
	if (r->session->state == SESSION_GREETING) {
		snprintf(why, WHY_BYTES, "Hello refused: %.200s", r->why);
		return KOPS_E_PROTOCOL;
	}
	return 0;
}

int request_handle(struct session *session, size_t len, int *fds, unsigned n_fds, bool fds_lost,
                   char why[WHY_BYTES])
{
	struct sessions *all = session->all;
	const char *refusal = NULL;
	struct request r = {
	    .session = session, .arrived_ns = clock_ns(), .fds = fds, .n_fds = n_fds, .fds_lost = fds_lost};
	int rc;

	r.msg = (const Kops__V1__Request *)message_unpack(&kops__v1__request__descriptor, all->in, len,
	                                                  MESSAGE_UNKNOWN_REFUSED, &all->arena, &refusal);
	if (r.msg) {
		r.id = r.msg->id;
		rc = perform(&r, why);
	} else {
		snprintf(why, WHY_BYTES, "%s", refusal);
		rc = KOPS_E_PROTOCOL;
	}
	for (unsigned i = 0; i < n_fds; i++)
		if (fds[i] >= 0)
			account_close(&session->engine->accounts, session->account, fds[i]);
	return rc;
}
