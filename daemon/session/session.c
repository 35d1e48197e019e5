#include "session/session.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "share/watch.h"

/* Longer replies may wait for a turn: receipts of many ops, and lists. */
#define SHORT_BYTES 1024u

/* ---- The socket ---- */

void session_shut_down(struct session *s)
{
	struct slow_call call = slow_begin(s->account, clock_ns());

	shutdown(s->fd, SHUT_RDWR);
	slow_end(&s->all->slow, s->account, &call);
}

int session_read_peer(const struct session *s, struct peer *ret, char why[WHY_BYTES])
{
	if (peer_read(s->fd, ret) == 0)
		return 0;
	snprintf(why, WHY_BYTES, "%s", peer_unread_why);
	return KOPS_E_NOMEM;
}

/*
 * Callers may be walking the session's jobs, so its next turn closes it. It is not watched until then: the
 * kernel would name a connection that is gone at every look.
 */
static void end_soon(struct session *s)
{
	session_shut_down(s);
	s->hung_up = s->readable = true;
	turns_wait(&s->all->turns, &s->waiter);
}

void session_mark_runs(struct session *s)
{
	if (s->is_marked)
		return;
	s->is_marked = true;
	s->runs_before = ring_mark(s->ring);
}

/* Leaves everything to the session's turn, in its user's time: a thousand sessions may end at once. */
static void on_poll(uv_poll_t *poll, int status, int events)
{
	struct session *s = poll->data;

	/* The client hung up. What it sent before is still read: it may give memory back. */
	s->hung_up |= status < 0;
	s->readable = true;
	if (s->ring && (events & UV_READABLE))
		session_mark_runs(s);
	turns_wait(&s->all->turns, &s->waiter);
}

/* Made when the session is first watched. A client that is gone by its first turn never costs it. */
static bool make_poll(struct session *s)
{
	if (uv_poll_init(s->engine->loop, &s->poll, s->fd) < 0)
		return false;
	s->poll.data = s;
	s->open_handles = 2;
	return true;
}

void session_stop_polling(struct session *s)
{
	if (s->open_handles == 2)
		uv_poll_stop(&s->poll);
}

void session_unwatch(struct session *s)
{
	if (!s->waiter.unwatched)
		session_stop_polling(s);
	s->waiter.unwatched = true;
}

void session_watch(struct session *s)
{
	if (session_is_received_elsewhere(s) && outbox_is_empty(&s->outbox)) {
		session_unwatch(s);
		return;
	}
	s->waiter.unwatched = false;
	if ((s->open_handles == 2 || make_poll(s)) &&
	    watch_start(&s->poll, !outbox_is_empty(&s->outbox) ? UV_WRITABLE : UV_READABLE, on_poll) == 0)
		return;
	if (log_may(&s->all->ends))
		log_warning("session %" PRIu64 " (uid %u pid %d) closed: cannot watch its socket; check free "
		            "memory and fs.epoll.max_user_watches",
		            s->serial, (unsigned)s->account->uid, (int)s->pid);
	end_soon(s);
}

/* ---- Out ---- */

/* Lets other users have their turns first: most of a long reply's cost is to send it. */
static bool waits_for_its_turn(const struct session *s, size_t bytes, int fd)
{
	const struct turns *turns = &s->all->turns;

	return bytes > SHORT_BYTES && fd < 0 && outbox_is_empty(&s->outbox) &&
	       !turns_pays(turns, &s->account->turns) &&
	       turns_have_others(turns, &s->account->turns, clock_ns());
}

int session_send(struct session *s, const uint8_t *data, size_t bytes, int fd)
{
	int rc;

	if (s->state == SESSION_CLOSING)
		return 0;
	if (waits_for_its_turn(s, bytes, fd) && outbox_keep(&s->outbox, data, bytes, fd) == 0) {
		turns_wait(&s->all->turns, &s->waiter);
		return 0;
	}
	rc = outbox_send(&s->outbox, data, bytes, fd);
	if (rc == KOPS_E_QUOTA)
		return rc;
	if (rc == KOPS_E_BUSY) {
		if (!s->midway) /* kopsd reads nothing more until the client has read this */
			turns_leave(&s->waiter);
		session_watch(s);
	} else if (rc < 0) {
		log_debug("session %" PRIu64 " closed: it left too many replies unread, or is gone", s->serial);
		end_soon(s);
	}
	return 0;
}

void session_close_ring(struct session *s)
{
	if (!s->ring)
		return;
	account_refund(&s->engine->accounts, s->account, ACCOUNT_MAPPED, ring_bytes(s->ring->entries));
	ring_free(s->ring);
	s->ring = NULL;
}
