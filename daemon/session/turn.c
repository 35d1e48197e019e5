#include "session/turn.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/timers.h"
#include "session/ending.h"
#include "session/request.h"

/* Sends replies that waited. */
static void send_on(struct session *s)
{
	int rc = s->hung_up ? KOPS_E_CONNECT : outbox_flush(&s->outbox);

	if (rc < 0 && rc != KOPS_E_BUSY) {
		session_close(s, NULL);
		return;
	}
	session_watch(s);
	if (rc < 0)
		return;
	if (s->ring || s->receiving.is_out)
		turns_wait(&s->all->turns, &s->waiter); /* runs or a datagram may have come */
	s->engine->progress(s->engine);
}

/* Whether further turns have to take runs before the next datagram is read. */
static bool has_runs_before(struct session *s)
{
	s->readable = s->is_marked || message_waits(s->fd);
	if (s->readable)
		session_mark_runs(s);
	return s->readable && !ring_is_past(s->ring, s->runs_before);
}

static void end_for(struct session *s, int rc, const char *why)
{
	if (rc == KOPS_E_PROTOCOL && !why[0])
		why = "a datagram is too large, or has too many descriptors";
	session_close(s, rc == KOPS_E_CONNECT ? NULL : why[0] ? why : "cannot receive");
}

/* False when there was nothing to read, or a thread of receivers.h reads it. */
static bool read_one(struct session *s)
{
	struct received received = {.fd = -1};
	char why[WHY_BYTES] = "";
	struct slow_call call = slow_begin(s->account, s->all->turns.began_ns);
	int rc = message_recv_bytes(s->fd, s->all->desk->in, &received.bytes);

	slow_end(&s->all->slow, s->account, &call);
	s->is_marked = false;
	if (rc == KOPS_E_BUSY) {
		s->readable = false;
		return false;
	}
	if (rc == KOPS_E_FD) {
		receivers_take(&s->all->receivers, &s->receiving, s->account, s->fd);
		session_unwatch(s);
		return false;
	}
	if (rc == 0)
		rc = request_handle(s, &received, why);
	if (rc < 0)
		end_for(s, rc, why);
	return true;
}

/* The datagram that read_one() left to receivers.h has come, or cannot come. */
static void take_received(struct session *s)
{
	struct receiving *r = &s->receiving;
	struct received received = r->received;
	char why[WHY_BYTES] = "";
	int rc = r->status;

	r->received.fd = -1;
	receivers_forget(&s->all->receivers, r);
	memcpy(s->all->desk->in, r->data, received.bytes);
	if (rc == 0)
		rc = request_handle(s, &received, why);
	else if (rc == KOPS_E_SYSTEM)
		snprintf(why, sizeof why, "cannot receive its descriptors");
	if (rc < 0 && rc != KOPS_E_BUSY)
		end_for(s, rc, why);
}

static void watch_again(struct session *s)
{
	if (s->waiter.unwatched)
		session_watch(s);
}

/* Takes a few runs. False: the session ends, or has to wait for its client. */
static bool take_runs(struct session *s)
{
	char why[WHY_BYTES];

	if (request_take_runs(s, why) < 0)
		session_close(s, why);
	return s->state != SESSION_CLOSING && outbox_is_empty(&s->outbox) && !s->midway;
}

static void resume(struct session *s)
{
	char why[WHY_BYTES];

	if (request_resume(s, why) < 0)
		session_close(s, why);
}

static void on_hello_timeout(uv_timer_t *timer)
{
	session_close(timer->data, "no Hello within hello-timeout");
}

static void open_session(struct session *s)
{
	s->state = SESSION_GREETING;
	uv_timer_init(s->engine->timers, &s->hello_timer);
	s->hello_timer.data = s;
	s->open_handles = 1;
	timers_start(&s->hello_timer, on_hello_timeout, s->engine->config->hello_timeout, 0);
	log_debug("session %" PRIu64 ": opened by uid %u pid %d", s->serial, (unsigned)s->account->uid,
	          (int)s->pid);
}

/*
 * Looks once more for a client with jobs in flight, which is likely to have sent more and loses nothing. The
 * same for a client that had to wait for its turn: a look costs less than to watch its socket again. For any
 * other client, which just got its answer, a look that finds nothing would only delay its waking up.
 */
static bool may_have_more(struct session *s, bool any)
{
	if (s->state == SESSION_CLOSING || session_is_received_elsewhere(s))
		return false;
	if (s->midway)
		return true;
	if (!outbox_is_empty(&s->outbox)) {
		watch_again(s);
		return false;
	}
	if (any && (s->jobs.count || s->hung_up || s->waiter.unwatched))
		return true;
	if (s->hung_up)
		session_close(s, NULL);
	else
		watch_again(s);
	return false;
}

bool session_take_turn(struct turns_waiter *waiter)
{
	struct session *s = container_of(waiter, struct session, waiter);

	if (s->state == SESSION_ARRIVED)
		open_session(s);
	if (s->midway) {
		resume(s);
		return may_have_more(s, true);
	}
	if (!outbox_is_empty(&s->outbox)) {
		send_on(s);
		return false;
	}
	if (s->receiving.is_out) {
		if (s->receiving.is_ready)
			take_received(s);
		return may_have_more(s, true);
	}
	if (s->ring && !take_runs(s))
		return s->midway != NULL;
	if (!s->readable && !s->waiter.unwatched)
		return false;
	if (s->ring && has_runs_before(s))
		return true;
	return may_have_more(s, (s->readable || !s->ring) && read_one(s));
}
