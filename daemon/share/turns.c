#include "share/turns.h"

#include <stddef.h>

#include "base/clock.h"

/* ---- Lists ---- */

static struct turns_waiter *first_of(const struct turns_user *u)
{
	return list_first(&u->waiters, struct turns_waiter, link);
}

/* A user with nothing to read has saved nothing up. */
static void link_user(struct turns *t, struct turns_user *u)
{
	fair_wait(&t->users, &u->party);
	u->is_new = u != t->taking;
	fair_catch_up(&t->users, &u->party);
}

static void push(struct turns *t, struct turns_user *u, struct turns_waiter *w)
{
	if (list_is_empty(&u->waiters) && !u->held)
		link_user(t, u);
	if (w->midway)
		list_push_first(&u->waiters, &w->link);
	else
		list_push_last(&u->waiters, &w->link);
}

static void take_out(struct turns_waiter *w)
{
	struct turns_user *u = w->user;

	list_remove(&w->link);
	if (list_is_empty(&u->waiters) && !u->held)
		fair_leave(&u->party);
}

/* ---- Turns ---- */

#define STOP_WATCHING 32u

static struct turns_user *user_of(const struct fair_party *party)
{
	return container_of(party, struct turns_user, party);
}

/* No waiting user is behind the clock, because the one that had least moves it. */
static bool user_goes_first(const struct fair_queue *users, const struct turns_user *u)
{
	INVARIANT(u->party.vtime >= users->clock);
	return u->is_new && u->party.vtime - users->clock < TURNS_AHEAD_NS;
}

/* For fair.h: the user who had least goes first, among those with new work if there are any. */
static bool goes_before(const struct fair_queue *users, const struct fair_party *a, const struct fair_party *b)
{
	bool first_a = user_goes_first(users, user_of(a)), first_b = user_goes_first(users, user_of(b));

	return first_a != first_b ? first_a : a->vtime < b->vtime;
}

/* Takes a turn that begins at `now`. Returns the time after it. */
static uint64_t take_turn(struct turns *t, uint64_t now)
{
	struct turns_user *u = user_of(fair_next(&t->users, goes_before));
	struct turns_waiter *w = first_of(u);
	uint64_t end;

	if (!user_goes_first(&t->users, u))
		fair_begin(&t->users, &u->party);
	u->is_new = false;
	take_out(w);
	if (u != t->latest)
		t->alone_since_ns = now;
	t->taking = t->latest = u;
	t->began_ns = now;
	if (w->take ? w->take(w) : t->take(w))
		turns_wait(t, w);
	t->taking = NULL;
	end = clock_ns();
	fair_charge(&t->users, &u->party, (double)(end - now));
	return end;
}

/* Stops watching sessions that wait for long. Each costs a system call, so the rest waits for the next time. */
static void stop_watching(struct turns *t)
{
	struct turns_waiter *w;

	for (unsigned n = 0; n < STOP_WATCHING && (w = list_take(&t->watched, struct turns_waiter, watched));
	     n++) {
		if (!turns_is_waiting(w) || w->unwatched)
			continue;
		w->unwatched = true;
		t->unwatch(w);
	}
}

bool turns_are_shared(const struct turns *t, uint64_t now)
{
	return now - t->alone_since_ns < TURNS_ALONE_NS;
}

bool turns_have_others(const struct turns *t, const struct turns_user *u, uint64_t now)
{
	return turns_are_shared(t, now) || (t->latest != u && now - t->began_ns < TURNS_ALONE_NS);
}

/* Returns true if the loop looked at the sockets less than a slice ago, and no other user would have to
 * wait. */
static bool may_take_more(const struct turns *t, uint64_t began, uint64_t now)
{
	return !turns_are_shared(t, now) && now - began < TURNS_SLICE_NS;
}

/* Takes turns from `began` on. Returns the time after them. */
static uint64_t take_turns(struct turns *t, uint64_t began)
{
	uint64_t now = began;

	while (turns_are_wanted(t)) {
		now = take_turn(t, now);
		if (!may_take_more(t, began, now))
			break;
	}
	stop_watching(t);
	return now;
}

/* Does nothing: an active handle keeps the loop awake. */
static void on_idle(uv_idle_t *idle)
{
	(void)idle;
}

/*
 * Looking at shared memory costs 0.1 us, at sockets 1 us. So for a user alone, the loop looks at memory several
 * times for each look at the sockets.
 */
static void on_check(uv_check_t *check)
{
	struct turns *t = check->data;
	uint64_t began = clock_ns(), now = began;
	bool any;

	t->is_checking = true;
	do {
		any = t->look && t->look(t);
		if (any)
			now = clock_ns();
		any |= turns_are_wanted(t);
		if (turns_are_wanted(t) || !list_is_empty(&t->watched))
			now = take_turns(t, now);
	} while (any && may_take_more(t, began, now));
	t->is_checking = false;
	if (turns_are_wanted(t))
		uv_idle_start(&t->idle, on_idle);
	else
		uv_idle_stop(&t->idle);
}

/* ---- From outside ---- */

void turns_init(struct turns *t, uv_loop_t *loop, bool (*take)(struct turns_waiter *waiter),
                void (*unwatch)(struct turns_waiter *waiter))
{
	*t = (struct turns){.take = take, .unwatch = unwatch};
	uv_check_init(loop, &t->check);
	uv_idle_init(loop, &t->idle);
	t->check.data = t;
	uv_check_start(&t->check, on_check);
	uv_unref((uv_handle_t *)&t->check);
	uv_unref((uv_handle_t *)&t->idle);
}

void turns_wait(struct turns *t, struct turns_waiter *w)
{
	if (turns_is_waiting(w))
		return;
	push(t, w->user, w);
	if (!t->is_checking) /* most often on_check() then gives it a turn */
		uv_idle_start(&t->idle, on_idle);
	if (!list_has(&w->watched) && !w->unwatched)
		list_push_first(&t->watched, &w->watched);
}

void turns_wait_anew(struct turns *t, struct turns_waiter *w)
{
	bool waited = !list_is_empty(&w->user->waiters);

	turns_wait(t, w);
	if (!waited)
		w->user->is_new = true;
}

void turns_leave(struct turns_waiter *w)
{
	if (list_has(&w->watched))
		list_remove(&w->watched);
	if (turns_is_waiting(w))
		take_out(w);
}

void turns_hold(struct turns_user *u, enum turns_reason why)
{
	if (fair_waits(&u->party))
		fair_leave(&u->party);
	u->held |= why;
}

void turns_release(struct turns *t, struct turns_user *u, enum turns_reason why)
{
	bool was_held = u->held;

	u->held &= ~(unsigned)why;
	if (!was_held || u->held || list_is_empty(&u->waiters))
		return;
	link_user(t, u);
	uv_idle_start(&t->idle, on_idle);
}

bool turns_pays(const struct turns *t, const struct turns_user *u)
{
	return t->taking == u || (!t->taking && !turns_are_wanted(t));
}

void turns_add(struct turns *t, struct turns_user *u, uint64_t ns)
{
	fair_catch_up(&t->users, &u->party);
	fair_charge(&t->users, &u->party, (double)ns);
}

void turns_charge(struct turns *t, struct turns_user *u)
{
	if (u != t->taking)
		turns_add(t, u, clock_ns() - t->began_ns);
}

bool turns_is_ahead(const struct turns *t, const struct turns_user *u)
{
	return fair_is_ahead(&t->users, &u->party);
}
