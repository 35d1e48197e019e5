#include "session/request.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "log.h"
#include "message.h"
#include "server.h"
#include "session/reply.h"
#include "session/verbs.h"
#include "status.h"

#define VERSION_SPOKEN  1
#define CLIENT_NAME_MAX 64

/* ---- Hello ---- */

static int handle_hello(struct request *r)
{
	const Kops__V1__Hello *hello = r->msg->hello;
	struct session *session = r->session;
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	Kops__V1__Welcome welcome = KOPS__V1__WELCOME__INIT;

	if (hello->version_min > VERSION_SPOKEN || hello->version_max < VERSION_SPOKEN) {
		snprintf(r->why, sizeof r->why,
		         "kopsd %s speaks protocol version %d, the client %u to %u; update the older one",
		         KOPS_VERSION, VERSION_SPOKEN, hello->version_min, hello->version_max);
		return KOPS_E_VERSION;
	}
	if (strlen(hello->client) > CLIENT_NAME_MAX) {
		snprintf(r->why, sizeof r->why, "the client's name has more than %d bytes", CLIENT_NAME_MAX);
		return KOPS_E_INVALID;
	}
	snprintf(session->client, sizeof session->client, "%s", hello->client);
	session->state = SESSION_OPEN;
	uv_timer_stop(&session->hello_timer);
	log_debug("session %" PRIu64 ": hello from \"%s\"", session->serial, session->client);

	welcome.version = VERSION_SPOKEN;
	welcome.daemon = (char *)"kopsd " KOPS_VERSION;
	welcome.max_datagram_bytes = MESSAGE_BYTES_MAX;
	welcome.max_ops = MESSAGE_OPS_MAX;
	welcome.max_buffers = session->server->config.max_buffers;
	welcome.max_jobs = session->server->config.max_jobs;
	reply.id = r->msg->id;
	reply.body_case = KOPS__V1__REPLY__BODY_WELCOME;
	reply.welcome = &welcome;
	reply_send(session, &reply, -1);
	return 0;
}

/* ---- Questions ---- */

static int handle_describe(struct request *r)
{
	reply_description(r->session, r->msg->id);
	return 0;
}

static int handle_stats(struct request *r)
{
	reply_statistics(r->session, r->msg->id);
	return 0;
}

/* ---- The table of verbs ---- */

static const struct verb {
	const char *name;
	int (*handle)(struct request *r); /* replies and returns 0, or returns the status to reply with */
	enum session_state state;         /* where it is allowed */
	unsigned fds_max;
} verbs[] = {
    [KOPS__V1__REQUEST__BODY_HELLO] = {"Hello", handle_hello, SESSION_GREETING, 0},
    [KOPS__V1__REQUEST__BODY_IMPORT] = {"Import", verb_import, SESSION_OPEN, 1},
    [KOPS__V1__REQUEST__BODY_ALLOC] = {"Alloc", verb_alloc, SESSION_OPEN, 0},
    [KOPS__V1__REQUEST__BODY_DROP] = {"Drop", verb_drop, SESSION_OPEN, 0},
    [KOPS__V1__REQUEST__BODY_SUBMIT] = {"Submit", verb_submit, SESSION_OPEN, 0},
    [KOPS__V1__REQUEST__BODY_CANCEL] = {"Cancel", verb_cancel, SESSION_OPEN, 0},
    [KOPS__V1__REQUEST__BODY_DESCRIBE] = {"Describe", handle_describe, SESSION_OPEN, 0},
    [KOPS__V1__REQUEST__BODY_STATS] = {"Stats", handle_stats, SESSION_OPEN, 0},
    [KOPS__V1__REQUEST__BODY_PING] = {"Ping", verb_ping, SESSION_OPEN, 0},
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
	log_debug("session %" PRIu64 " request %" PRIu64 ": %s: %s: %s", r->session->serial, r->msg->id,
	          verb->name, status_name(rc), r->why[0] ? r->why : status_text(rc));
	reply_error(r->session, r->msg->id, rc, r->why, r->retry_after_us);
	if (r->session->state == SESSION_GREETING) {
		snprintf(why, WHY_BYTES, "Hello refused: %.200s", r->why);
		return KOPS_E_PROTOCOL;
	}
	return 0;
}

int request_handle(struct session *session, size_t len, int *fds, unsigned n_fds, bool fds_lost,
                   char why[WHY_BYTES])
{
	struct server *server = session->server;
	const char *refusal = NULL;
	struct request r = {.session = session, .fds = fds, .n_fds = n_fds, .fds_lost = fds_lost};
	int rc;

	r.msg = (const Kops__V1__Request *)message_unpack(&kops__v1__request__descriptor, server->in, len,
	                                                  MESSAGE_UNKNOWN_REFUSED, &server->arena, &refusal);
	if (r.msg) {
		rc = perform(&r, why);
	} else {
		snprintf(why, WHY_BYTES, "%s", refusal);
		rc = KOPS_E_PROTOCOL;
	}
	for (unsigned i = 0; i < n_fds; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return rc;
}
