#include "session/request.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "log.h"
#include "message.h"
#include "session/reply.h"
#include "session/runs.h"
#include "session/verbs.h"
#include "share/closing.h"
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

/* Runs of a ring in one turn, and for how long; those that are planned anew take longer. */
#define TAKE_MAX 8
#define TAKE_NS  10000u

/* ---- Step by step ---- */

/* To clear all of it would take each run of a ring longer than to be taken. */
static void begin_request(struct request *r, struct session *s, uint64_t arrived_ns)
{
	memset(r, 0, offsetof(struct request, why));
	r->why[0] = '\0';
	r->making.job = NULL; /* which runs_unmake() goes by, whatever the request turns out to be */
	r->making.is_new = false;
	r->import_fd = -1;
	r->session = s;
	r->arrived_ns = arrived_ns;
}

static void close_import(struct request *r)
{
	if (r->import_fd >= 0)
		closing_add(&r->session->engine->accounts, r->session->account, r->import_fd);
	r->import_fd = -1;
}

static void refuse_request(struct request *r, int rc)
{
	close_import(r);
	log_debug("session %" PRIu64 " request %" PRIu64 ": %s: %s: %s", r->session->serial, r->id, r->verb,
	          status_name(rc), r->why[0] ? r->why : status_text(rc));
	if (r->by_ring)
		ring_release(r->session->ring);
	reply_error(r->session, r->id, rc, r->why, r->retry_after_us);
}

/* What is left of it goes to the session's next turn. False: there is no room for that. */
static bool put_off(struct request *r)
{
	struct session *s = r->session;
	struct sessions *all = s->all;
	struct request *midway;

	if (all->n_free_desks == 0 || !(midway = message_arena_alloc(&all->desk->arena, sizeof *midway)))
		return false;
	*midway = *r;
	midway->desk = all->desk;
	all->desk = all->free_desks[--all->n_free_desks];
	s->midway = midway;
	s->waiter.midway = true;
	return true;
}

/* Its desk is the one at work again. */
static struct request take_up(struct session *s)
{
	struct sessions *all = s->all;
	struct request r = *s->midway;

	all->free_desks[all->n_free_desks++] = all->desk;
	all->desk = r.desk;
	s->midway = NULL;
	s->waiter.midway = false;
	return r;
}

static int take_step(struct request *r)
{
	int (*next)(struct request * r) = r->next;

	r->next = NULL;
	return next(r);
}

/* After a step that returned rc: KOPS_E_PROTOCOL, with a reason in why, when the session has to end; else 0. */
static int go_on(struct request *r, int rc, char why[WHY_BYTES])
{
	while (rc == 0 && r->next && !put_off(r))
		rc = take_step(r);
	if (rc == KOPS_E_PROTOCOL)
		snprintf(why, WHY_BYTES, "%s", r->why);
	if (rc == 0 || rc == KOPS_E_PROTOCOL)
		return rc;
	refuse_request(r, rc);
	if (r->session->state != SESSION_GREETING)
		return 0;
	snprintf(why, WHY_BYTES, "Hello refused: %.200s", r->why);
	return KOPS_E_PROTOCOL;
}

/* ---- Datagrams ---- */

static int perform(struct request *r)
{
	unsigned c = (unsigned)r->msg->body_case;
	const struct verb *verb = c < sizeof verbs / sizeof verbs[0] && verbs[c].handle ? &verbs[c] : NULL;

	if (!verb) {
		snprintf(r->why, sizeof r->why, "a request has no verb");
		return KOPS_E_PROTOCOL;
	}
	if (verb->state != r->session->state) {
		snprintf(r->why, sizeof r->why, "%s %s Hello", verb->name,
		         verb->state == SESSION_OPEN ? "before" : "after another");
		return KOPS_E_PROTOCOL;
	}
	if (r->received.n_fds > verb->fds_max) {
		snprintf(r->why, sizeof r->why, "%s with %u descriptors", verb->name, r->received.n_fds);
		return KOPS_E_PROTOCOL;
	}
	r->verb = verb->name;
	return verb->handle(r);
}

/* Descriptors are the caller's, and those messages that may have any are short. */
static int unpack_some(struct request *r)
{
	struct message_unpacking *u = &r->session->all->desk->unpacking;

	if (!message_unpack_some(u, r->received.n_fds ? MESSAGE_BYTES_MAX : STEP_BYTES)) {
		r->next = unpack_some;
		return 0;
	}
	if (u->why) {
		snprintf(r->why, sizeof r->why, "%s", u->why);
		return KOPS_E_PROTOCOL;
	}
	r->msg = (const Kops__V1__Request *)u->msg;
	r->id = r->msg->id;
	return perform(r);
}

int request_handle(struct session *session, const struct received *received, char why[WHY_BYTES])
{
	struct desk *desk = session->all->desk;
	struct request r;
	int rc;

	begin_request(&r, session, session->all->turns.began_ns);
	r.bytes = received->bytes;
	r.received = *received;
	message_unpack_begin(&desk->unpacking, &kops__v1__request__descriptor, desk->in, r.bytes,
	                     MESSAGE_UNKNOWN_REFUSED, &desk->arena);
	rc = go_on(&r, unpack_some(&r), why);
	if (r.received.fd >= 0)
		closing_add(&session->engine->accounts, session->account, r.received.fd);
	return rc;
}

/* ---- Midway ---- */

int request_resume(struct session *session, char why[WHY_BYTES])
{
	struct request r = take_up(session);

	return go_on(&r, take_step(&r), why);
}

void request_abandon(struct session *session)
{
	struct request r = take_up(session);

	close_import(&r);
	runs_unmake(&r);
}

/* ---- Runs of a ring ---- */

int request_take_runs(struct session *s, char why[WHY_BYTES])
{
	uint64_t began = s->all->turns.began_ns, now = began;
	struct ring_run run;
	struct request r;

	for (unsigned i = 0; i < TAKE_MAX && now - began < TAKE_NS && !s->midway; i++) {
		int rc = ring_take(s->ring, &run, why);

		if (rc <= 0)
			return rc;
		begin_request(&r, s, now);
		r.received.fd = -1;
		r.verb = "Run";
		r.by_ring = true;
		r.id = run.id;
		rc = go_on(&r, runs_run(&r, run.prepared, 0), why);
		if (rc < 0)
			return rc;
		now = clock_ns();
	}
	return 0;
}
