#include "session/session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/timers.h"
#include "cpu_pause.h"
#include "job/prepared.h"
#include "session/peer.h"
#include "share/closing.h"
#include "share/watch.h"

/* Longer replies may wait for a turn: receipts of many ops, and lists. */
#define SHORT_BYTES 1024u

/* To look at sockets takes the loop 1 µs, at memory 0.1: it looks there so long for each look at sockets. */
#define LOOK_NS 2000u

static void on_poll(uv_poll_t *poll, int status, int events);

static void shut_down(struct session *s)
{
	struct slow_call call = slow_begin(s->account, clock_ns());

	shutdown(s->fd, SHUT_RDWR);
	slow_end(&s->all->slow, s->account, &call);
}

/*
 * A connection that cannot be kept in order is shut down, and its next turn finds it so. It is not watched for
 * that: a connection that is gone would be named at every look until then.
 */
static void end_soon(struct session *s)
{
	shut_down(s);
	s->hung_up = s->readable = true;
	turns_wait(&s->all->turns, &s->place);
}

/* When it is first watched: one that is gone by its first turn never is, which is most of what it would cost.
 */
static bool make_poll(struct session *s)
{
	if (uv_poll_init(s->engine->loop, &s->poll, s->fd) < 0)
		return false;
	s->poll.data = s;
	s->open_handles = 2;
	return true;
}

static struct session *of_place(struct turns_place *place)
{
	return container_of(place, struct session, place);
}

/* Until a turn of it has nothing more to read. */
static void unwatch(struct turns_place *place)
{
	struct session *s = of_place(place);

	if (s->open_handles == 2)
		uv_poll_stop(&s->poll);
}

static void unwatch_now(struct session *s)
{
	if (!s->place.unwatched)
		unwatch(&s->place);
	s->place.unwatched = true;
}

/* A datagram that is received elsewhere is in the socket still, and would be named at every look. */
static bool is_received_elsewhere(const struct session *s)
{
	return s->receiving.is_out && !s->receiving.is_ready;
}

/* One that cannot be watched ends: its client connects again. */
static void watch(struct session *s)
{
	if (is_received_elsewhere(s) && outbox_is_empty(&s->outbox)) {
		unwatch_now(s);
		return;
	}
	s->place.unwatched = false;
	if ((s->open_handles == 2 || make_poll(s)) &&
	    watch_start(&s->poll, !outbox_is_empty(&s->outbox) ? UV_WRITABLE : UV_READABLE, on_poll) == 0)
		return;
	if (log_may(&s->all->ends))
		log_warning("session %" PRIu64 " (uid %u pid %d) ends: its socket cannot be watched; is there "
		            "memory, and room below fs.epoll.max_user_watches?",
		            s->serial, (unsigned)s->account->uid, (int)s->pid);
	end_soon(s);
}

/* ---- Out ---- */

/* Other users have theirs meanwhile: most of such a reply's cost is to send it. */
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
		turns_wait(&s->all->turns, &s->place);
		return 0;
	}
	rc = outbox_send(&s->outbox, data, bytes, fd);
	if (rc == KOPS_E_QUOTA)
		return rc;
	if (rc == KOPS_E_BUSY) {
		if (!s->midway) /* nothing is read of it until it has read this */
			turns_leave(&s->place);
		watch(s);
	} else if (rc < 0) {
		log_debug("session %" PRIu64 " ends: it leaves too much unread, or is gone", s->serial);
		end_soon(s); /* callers are in the midst of walking its jobs */
	}
	return 0;
}

/* Replies that waited. */
static void send_on(struct session *s)
{
	int rc = s->hung_up ? KOPS_E_CONNECT : outbox_flush(&s->outbox);

	if (rc < 0 && rc != KOPS_E_BUSY) {
		session_close(s, NULL);
		return;
	}
	watch(s);
	if (rc < 0)
		return;
	if (s->ring || s->receiving.is_out)
		turns_wait(&s->all->turns, &s->place); /* runs or a datagram may have come meanwhile */
	s->engine->progress(s->engine);
}

/* ---- In ---- */

/*
 * A datagram waits. Runs that were put into the ring before it was sent come before it, so what is in the ring
 * by now does.
 */
static void mark_runs(struct session *s)
{
	if (s->is_marked)
		return;
	s->is_marked = true;
	s->runs_before = ring_mark(s->ring);
}

/* Whether runs have to be taken, in further turns, before the next datagram is read. */
static bool has_runs_before(struct session *s)
{
	s->readable = s->is_marked || message_waits(s->fd);
	if (s->readable)
		mark_runs(s);
	return s->readable && !ring_is_past(s->ring, s->runs_before);
}

static void end_for(struct session *s, int rc, const char *why)
{
	if (rc == KOPS_E_PROTOCOL && !why[0])
		why = "a datagram too large, or with too many descriptors";
	session_close(s, rc == KOPS_E_CONNECT ? NULL : why[0] ? why : "cannot receive");
}

/* False when there was nothing to read, or it is received elsewhere. */
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
		unwatch_now(s);
		return false;
	}
	if (rc == 0)
		rc = s->all->handle(s, &received, why);
	if (rc < 0)
		end_for(s, rc, why);
	return true;
}

/* What read_one() left to others came, or cannot come. */
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
		rc = s->all->handle(s, &received, why);
	else if (rc == KOPS_E_SYSTEM)
		snprintf(why, sizeof why, "its descriptors cannot be received");
	if (rc < 0 && rc != KOPS_E_BUSY)
		end_for(s, rc, why);
}

static void watch_again(struct session *s)
{
	if (s->place.unwatched)
		watch(s);
}

/* A few. False: the session ends, or has to wait for its client. */
static bool take_runs(struct session *s)
{
	char why[WHY_BYTES];

	if (s->all->take_runs(s, why) < 0)
		session_close(s, why);
	return s->state != SESSION_CLOSING && outbox_is_empty(&s->outbox) && !s->midway;
}

static void resume(struct session *s)
{
	char why[WHY_BYTES];

	if (s->all->resume(s, why) < 0)
		session_close(s, why);
}

static void on_hello_timeout(uv_timer_t *timer)
{
	session_close(timer->data, "no Hello in time");
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
 * A client with jobs out is likely to have sent more, and has nothing to lose by our looking; one that had to
 * wait for its turn has sent more by the next, and looking costs less than watching it again. To any other that
 * got its answer, a second look that finds nothing would only delay its waking up.
 */
static bool may_have_more(struct session *s, bool any)
{
	if (s->state == SESSION_CLOSING || is_received_elsewhere(s))
		return false;
	if (s->midway)
		return true;
	if (!outbox_is_empty(&s->outbox)) {
		watch_again(s);
		return false;
	}
	if (any && (s->jobs.count || s->hung_up || s->place.unwatched))
		return true;
	if (s->hung_up)
		session_close(s, NULL);
	else
		watch_again(s);
	return false;
}

static bool take_turn(struct turns_place *place)
{
	struct session *s = of_place(place);

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
	if (!s->readable && !s->place.unwatched)
		return false;
	if (s->ring && has_runs_before(s))
		return true;
	return may_have_more(s, (s->readable || !s->ring) && read_one(s));
}

/* Whatever it is, what follows is its user's time: a thousand sessions that end at once take a while. */
static void on_poll(uv_poll_t *poll, int status, int events)
{
	struct session *s = poll->data;

	/* It closed with replies unread. What it sent before still counts: it may give memory back. */
	s->hung_up |= status < 0;
	s->readable = true;
	if (s->ring && (events & UV_READABLE))
		mark_runs(s);
	turns_wait(&s->all->turns, &s->place);
}

/* ---- Opening and closing ---- */

/* 0 or KOPS_E_* with the sentence. most: sessions that the user may have. */
static int may_open(const struct sessions *all, const struct account *account, uint64_t most,
                    char why[WHY_BYTES])
{
	uint64_t limit = all->engine->config->max_sessions;
	unsigned n = all->engine->accounts.sessions;

	if (all->stopping) {
		snprintf(why, WHY_BYTES, "kopsd is stopping");
		return KOPS_E_SHUTDOWN;
	}
	if (n >= limit)
		snprintf(why, WHY_BYTES,
		         "kopsd has %u sessions, and max-sessions is %" PRIu64 "; try again later", n, limit);
	else if (n >= all->max)
		snprintf(
		    why, WHY_BYTES,
		    "kopsd has %u sessions, which take a quarter of its file descriptors; try again later, or "
		    "have LimitNOFILE raised",
		    n);
	else if (account->sessions >= most)
		snprintf(why, WHY_BYTES,
		         "uid %u has %u sessions, and max-sessions-per-uid is %" PRIu64
		         "; close one, or have the limit raised",
		         (unsigned)account->uid, account->sessions, most);
	else
		return 0;
	return KOPS_E_QUOTA;
}

/* It answers no request: none was read. It is the first on this socket, so there is room. */
static void send_refusal(struct sessions *all, struct account *account, int fd, int status, char *why)
{
	struct slow_call call = account ? slow_begin(account, clock_ns()) : (struct slow_call){0};
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	size_t bytes;

	reply.status = status;
	reply.message = why;
	if (message_pack(&reply.base, all->out, &bytes) == 0)
		message_send(fd, all->out, bytes, NULL, 0); /* a client that is gone misses nothing */
	if (account)
		slow_end(&all->slow, account, &call);
}

void sessions_turn_away(struct sessions *all, int fd, char *why)
{
	send_refusal(all, NULL, fd, KOPS_E_NOMEM, why);
}

/* While kopsd stops, the client hears nothing: it tries again by itself. */
static void refuse(struct sessions *all, struct account *account, int fd, const struct peer *peer, int status,
                   char *why)
{
	if (status != KOPS_E_SHUTDOWN && !(account && slow_is_held(account)))
		send_refusal(all, account, fd, status, why);
	if (log_may(&all->refusals))
		log_notice("connection of uid %u pid %d refused: %s", (unsigned)peer->uid, (int)peer->pid, why);
}

/* Takes over fd. */
static struct session *session_new(struct sessions *all, int fd, const struct peer *peer)
{
	static uint64_t serial;
	struct accounts *accounts = &all->engine->accounts;
	struct account *account = accounts_get(accounts, peer->uid);
	struct user_limits limits = {0};
	char why[WHY_BYTES];
	int status = 0;
	struct session *s;

	if (account) {
		limits = account_limits_beside(accounts, account, peer->groups, peer->n_groups);
		status = may_open(all, account, limits.max_sessions_per_uid, why);
		turns_charge(&all->turns, &account->turns);
	}
	s = account && status == 0 ? calloc(1, sizeof *s) : NULL;
	if (!s && status == 0) {
		snprintf(why, sizeof why, "kopsd is out of memory; try again later");
		status = KOPS_E_NOMEM;
	}
	if (!s) {
		refuse(all, account, fd, peer, status, why);
		closing_add(accounts, account, fd);
		if (account)
			account_unref(accounts, account);
		return NULL;
	}
	s->all = all;
	s->engine = all->engine;
	s->account = account;
	s->place.user = &account->turns;
	s->place.unwatched = true;
	s->fd = fd;
	s->pid = peer->pid;
	s->is_colleague = peer_is_in(peer, getegid());
	s->arrived_ns = clock_ns();
	s->serial = ++serial;
	s->outbox = (struct outbox){
	    .accounts = accounts, .slow = &all->slow, .unreads = &all->unreads, .account = account, .sock = fd};
	outbox_init(&s->outbox);
	s->pings = (struct questions){.askers = &all->pings, .session = s, .account = account};
	s->stats = (struct questions){.askers = &all->stats, .session = s, .account = account};
	account->limits = limits;
	account->sessions++;
	accounts->sessions++;
	return s;
}

/* What its user may have by the new settings. */
static void note_limits(const struct session *s)
{
	struct accounts *accounts = &s->engine->accounts;
	struct peer peer;

	if (peer_read(s->fd, &peer) < 0) {
		account_note_session(accounts, s->account, NULL, 0); /* its groups are not known just now */
		return;
	}
	account_note_session(accounts, s->account, peer.groups, peer.n_groups);
	peer_free(&peer);
}

struct account *session_arrive(struct sessions *all, int fd)
{
	struct peer peer;
	struct session *s;

	if (peer_read(fd, &peer) < 0) {
		sessions_turn_away(all, fd,
		                   "kopsd could not find out whose connection this is; try again later");
		closing_add(&all->engine->accounts, NULL, fd);
		return NULL;
	}
	s = session_new(all, fd, &peer);
	peer_free(&peer);
	if (!s)
		return NULL;
	list_push_first(&all->list, &s->link);
	if (all->reload.step)
		note_limits(s);
	turns_wait_anew(&all->turns, &s->place);
	return s->account;
}

static bool reload_step(struct errand *errand)
{
	struct sessions *all = container_of(errand, struct sessions, reload);
	struct session *s = list_walk_at(&all->to_reload, struct session, link);

	if (s) {
		list_walk_on(&all->to_reload);
		note_limits(s);
		return true;
	}
	list_walk_end(&all->to_reload);
	accounts_take_limits(&all->engine->accounts);
	all->reloaded(all);
	return false;
}

/* A round that is under way begins anew. */
void sessions_reload(struct sessions *all, void (*reloaded)(struct sessions *all))
{
	struct accounts *accounts = &all->engine->accounts;

	accounts_begin_limits(accounts);
	list_walk_begin(&all->to_reload, &all->walks, &all->list);
	all->reloaded = reloaded;
	if (!all->reload.step)
		errands_add(&accounts->errands, &all->reload, reload_step);
}

static void unlist(struct session *s)
{
	list_walks_pass(&s->all->walks, &s->link);
	list_remove(&s->link);
}

static void session_free(struct session *s)
{
	account_unref(&s->engine->accounts, s->account);
	free(s);
}

static void release_handle(struct session *s)
{
	if (--s->open_handles == 0)
		session_free(s);
}

static void on_handle_closed(uv_handle_t *handle)
{
	release_handle(handle->data);
}

void session_close_ring(struct session *s)
{
	if (!s->ring)
		return;
	account_refund(&s->engine->accounts, s->account, ACCOUNT_MAPPED, ring_bytes(s->ring->entries));
	ring_free(s->ring);
	s->ring = NULL;
}

void session_leave_connection(struct session *s)
{
	unread_leave(&s->all->unreads, s->outbox.unread, s->account, s->fd);
	s->fd = -1;
}

void session_ended(struct session *s)
{
	struct engine *e = s->engine;

	job_queues_forget(&s->queues);
	idmap_clear(&s->jobs);
	idmap_clear(&s->prepared);
	idmap_clear(&s->buffers);
	session_close_ring(s);
	pool_look_soon(e->pool, s->account);
	e->progress(e);
	release_handle(s);
}

void session_close(struct session *s, const char *why)
{
	if (s->state == SESSION_CLOSING)
		return;
	if (why && log_may(&s->all->ends))
		log_notice("session %" PRIu64 " (uid %u pid %d) ended: %s", s->serial,
		           (unsigned)s->account->uid, (int)s->pid, why);
	s->state = SESSION_CLOSING;
	turns_leave(&s->place);
	unlist(s);
	if (s->midway)
		s->all->abandon(s);
	list_walk_end(&s->walk);
	receivers_forget(&s->all->receivers, &s->receiving);
	questions_leave(&s->pings);
	questions_leave(&s->stats);
	s->account->sessions--;
	s->engine->accounts.sessions--;
	if (s->outbox.unread || !outbox_is_empty(&s->outbox))
		shut_down(s); /* for now it stays open */
	switch (s->open_handles++) {
	case 2:
		uv_close((uv_handle_t *)&s->poll, on_handle_closed);
		/* fall through */
	case 1:
		uv_close((uv_handle_t *)&s->hello_timer, on_handle_closed);
	}
	if (outbox_is_empty(&s->outbox)) /* nobody polls it any more */
		session_leave_connection(s);
	session_end(s);
	s->engine->progress(s->engine);
}

/* ---- All of them ---- */

static void has_runs(void *user)
{
	struct session *s = user;

	if (outbox_is_empty(&s->outbox) && !s->receiving.is_out && s->state != SESSION_CLOSING)
		turns_wait(&s->all->turns, &s->place);
}

static void has_received(struct receiving *receiving)
{
	struct session *s = container_of(receiving, struct session, receiving);

	turns_wait(&s->all->turns, &s->place);
}

static bool is_busy(const struct rings *rings)
{
	const struct sessions *all = container_of(rings, struct sessions, rings);

	return turns_are_wanted(&all->turns);
}

/* Whether the loop has nothing to do and does not sleep, since the next thing should come by memory. */
static bool looks_out(const struct sessions *all)
{
	const struct engine *e = all->engine;
	bool any = rings_are_awake(&all->rings);

	for (unsigned i = 0; i < e->n_devices; i++) {
		if (device_waits_to_tell(e->devices[i].device))
			return false;
		any |= device_looks_out(e->devices[i].device);
	}
	return any && !turns_are_wanted(&all->turns);
}

/* Ends of runs first: who gets one sends the next. */
static bool look_once(struct sessions *all)
{
	const struct engine *e = all->engine;
	bool any = false;

	for (unsigned i = 0; i < e->n_devices; i++)
		any |= device_look(e->devices[i].device);
	rings_look(&all->rings);
	return any;
}

static bool look(struct turns *turns)
{
	struct sessions *all = container_of(turns, struct sessions, turns);
	bool found = look_once(all);
	uint64_t until_ns;

	if (found || !looks_out(all))
		return found;
	until_ns = clock_ns() + LOOK_NS;
	do {
		cpu_pause();
		found = look_once(all);
	} while (!found && !turns_are_wanted(turns) && clock_ns() < until_ns);
	return found;
}

int sessions_start_receivers(struct sessions *all, unsigned most, char why[WHY_BYTES])
{
	return receivers_start(&all->receivers, all->engine->loop, all->engine->timers, &all->engine->accounts,
	                       most, has_received, why);
}

void sessions_init(struct sessions *all)
{
	turns_init(&all->turns, all->engine->loop, take_turn, unwatch);
	all->turns.look = look;
	rings_init(&all->rings, all->engine->loop, has_runs, is_busy);
	unreads_init(&all->unreads, all->engine->timers, &all->engine->accounts);
	slow_init(&all->slow, all->engine->timers, &all->engine->accounts);
	sensors_init(&all->sensors);
	all->desk = &all->desks[SESSIONS_MIDWAY_MAX];
	while (all->n_free_desks < SESSIONS_MIDWAY_MAX) {
		all->free_desks[all->n_free_desks] = &all->desks[all->n_free_desks];
		all->n_free_desks++;
	}
}

static bool is_quiet(const struct session *s)
{
	return !s->jobs.count && !s->midway && outbox_is_empty(&s->outbox) && list_is_empty(&s->pending) &&
	       list_is_empty(&s->dropped) && list_is_empty(&s->pings.list) && list_is_empty(&s->stats.list);
}

bool sessions_are_quiet(const struct sessions *all)
{
	const struct session *s;

	list_for_each (s, &all->list, link)
		if (!is_quiet(s))
			return false;
	return true;
}

void sessions_close(struct sessions *all)
{
	struct session *s;

	while ((s = list_first(&all->list, struct session, link)))
		session_close(s, NULL);
	accounts_finish_errands(&all->engine->accounts);
	receivers_stop(&all->receivers);
	unreads_clear(&all->unreads);
}
