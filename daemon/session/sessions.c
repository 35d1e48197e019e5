#include "session/sessions.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/peer.h"
#include "cpu_pause.h"
#include "dispatch/dispatch.h"
#include "session/ending.h"
#include "session/turn.h"
#include "share/closing.h"

/* A look at sockets takes 1 µs, a look at memory 0.1. The loop looks at memory for so long between two looks at
 * sockets. */
#define LOOK_NS 2000u

/* ---- Arrivals ---- */

/* 0 or KOPS_E_* with a sentence. most: how many sessions the user may have. */
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
		snprintf(why, WHY_BYTES,
		         "kopsd has %u sessions, which use a quarter of its file descriptors; try again later, "
		         "or have LimitNOFILE raised",
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

/* The reply answers no request, since none was read. It is the first on this socket, so there is room. */
static void send_refusal(struct sessions *all, struct account *account, int fd, int status, const char *why)
{
	struct slow_call call = account ? slow_begin(account, clock_ns()) : (struct slow_call){0};
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	size_t bytes;

	reply.status = status;
	reply.message = (char *)why;
	if (message_pack(&reply.base, all->out, &bytes) == 0)
		message_send(fd, all->out, bytes, NULL, 0); /* a client that is gone misses nothing */
	if (account)
		slow_end(&all->slow, account, &call);
}

void sessions_turn_away(struct sessions *all, int fd, const char *why)
{
	send_refusal(all, NULL, fd, KOPS_E_NOMEM, why);
}

/* While kopsd stops it sends no refusal: the client tries again by itself. */
static void refuse_connection(struct sessions *all, struct account *account, int fd, const struct peer *peer,
                              int status, char *why)
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
		refuse_connection(all, account, fd, peer, status, why);
		closing_add(accounts, account, fd);
		if (account)
			account_unref(accounts, account);
		return NULL;
	}
	s->all = all;
	s->engine = all->engine;
	s->account = account;
	s->waiter.user = &account->turns;
	s->waiter.unwatched = true;
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

/* Notes what the session's user may have by the new settings. */
static void note_limits(const struct session *s)
{
	struct accounts *accounts = &s->engine->accounts;
	struct peer peer;

	if (peer_read(s->fd, &peer) < 0) {
		account_note_session(accounts, s->account, NULL, 0); /* the groups cannot be read just now */
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
		sessions_turn_away(all, fd, peer_unread_why);
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
	turns_wait_anew(&all->turns, &s->waiter);
	return s->account;
}

/* ---- New settings ---- */

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
	jobs_dispatch(all->engine); /* another job may be due by the new shares */
	all->reloaded(all);
	return false;
}

/* Begins anew where a round is under way. */
void sessions_reload(struct sessions *all, void (*reloaded)(struct sessions *all))
{
	struct accounts *accounts = &all->engine->accounts;

	accounts_begin_limits(accounts);
	list_walk_begin(&all->to_reload, &all->walks, &all->list);
	all->reloaded = reloaded;
	if (!all->reload.step)
		errands_add(&accounts->errands, &all->reload, reload_step);
}

/* ---- Looks ---- */

static void has_runs(void *user)
{
	struct session *s = user;

	if (outbox_is_empty(&s->outbox) && !s->receiving.is_out && s->state != SESSION_CLOSING)
		turns_wait(&s->all->turns, &s->waiter);
}

static void has_received(struct receiving *receiving)
{
	struct session *s = container_of(receiving, struct session, receiving);

	turns_wait(&s->all->turns, &s->waiter);
}

static bool is_busy(const struct rings *rings)
{
	const struct sessions *all = container_of(rings, struct sessions, rings);

	return turns_are_wanted(&all->turns);
}

/* Whether the loop is idle but stays awake, since it expects the next work by a ring or a device's memory. */
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

/* Looks at ends of runs first: a client that gets one sends its next run. */
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

/* ---- All of them ---- */

static void unwatch(struct turns_waiter *waiter)
{
	session_stop_polling(container_of(waiter, struct session, waiter));
}

int sessions_start_receivers(struct sessions *all, unsigned most, char why[WHY_BYTES])
{
	return receivers_start(&all->receivers, all->engine->loop, all->engine->timers, &all->engine->accounts,
	                       most, has_received, why);
}

void sessions_init(struct sessions *all)
{
	turns_init(&all->turns, all->engine->loop, session_take_turn, unwatch);
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
