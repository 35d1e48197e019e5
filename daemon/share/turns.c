#include "share/turns.h"

#include <stddef.h>

#include "clock.h"

/* ---- Lists ---- */

/* Who had nothing to read saves up nothing. */
static void catch_up(const struct turns *t, struct turns_user *u)
{
	if (u->spent_ns < t->clock_ns)
		u->spent_ns = t->clock_ns;
}

static void link_user(struct turns *t, struct turns_user *u)
{
	u->prev = NULL;
	u->next = t->users;
	if (u->next)
		u->next->prev = u;
	t->users = u;
	u->is_new = u != t->taking;
	catch_up(t, u);
}

static void unlink_user(struct turns *t, struct turns_user *u)
{
	if (u->prev)
		u->prev->next = u->next;
	else
		t->users = u->next;
	if (u->next)
		u->next->prev = u->prev;
}

static void put_first(struct turns_user *u, struct turns_place *p)
{
	p->prev = NULL;
	p->next = u->first;
	if (p->next)
		p->next->prev = p;
	else
		u->last = p;
	u->first = p;
}

static void put_last(struct turns_user *u, struct turns_place *p)
{
	p->next = NULL;
	p->prev = u->last;
	if (p->prev)
		p->prev->next = p;
	else
		u->first = p;
	u->last = p;
}

static void push(struct turns *t, struct turns_user *u, struct turns_place *p)
{
	if (!u->first && !u->held)
		link_user(t, u);
	p->waits = true;
	if (p->midway)
		put_first(u, p);
	else
		put_last(u, p);
}

static void take_out(struct turns *t, struct turns_place *p)
{
	struct turns_user *u = p->user;

	if (p->prev)
		p->prev->next = p->next;
	else
		u->first = p->next;
	if (p->next)
		p->next->prev = p->prev;
	else
		u->last = p->prev;
	p->waits = false;
	if (!u->first && !u->held)
		unlink_user(t, u);
}

static void list_watched(struct turns *t, struct turns_place *p)
{
	p->listed = true;
	p->prev_watched = NULL;
	p->next_watched = t->watched;
	if (p->next_watched)
		p->next_watched->prev_watched = p;
	t->watched = p;
}

static void unlist_watched(struct turns *t, struct turns_place *p)
{
	if (p->prev_watched)
		p->prev_watched->next_watched = p->next_watched;
	else
		t->watched = p->next_watched;
	if (p->next_watched)
		p->next_watched->prev_watched = p->prev_watched;
	p->listed = false;
}

/* ---- Turns ---- */

#define STOP_WATCHING 32u

static bool goes_first(const struct turns *t, const struct turns_user *u)
{
	return u->is_new && u->spent_ns - t->clock_ns < TURNS_AHEAD_NS;
}

/* Who has had least, of those that go first if there are any. */
static struct turns_user *pick(const struct turns *t)
{
	struct turns_user *best = t->users;
	bool first = goes_first(t, best);

	for (struct turns_user *u = best->next; u; u = u->next) {
		bool f = goes_first(t, u);

		if (f == first ? u->spent_ns < best->spent_ns : f) {
			best = u;
			first = f;
		}
	}
	return best;
}

/* From `now` on. Returns the time after it. */
static uint64_t take_turn(struct turns *t, uint64_t now)
{
	struct turns_user *u = pick(t);
	struct turns_place *p = u->first;
	uint64_t end;

	if (!goes_first(t, u))
		t->clock_ns = u->spent_ns;
	u->is_new = false;
	take_out(t, p);
	if (u != t->latest)
		t->alone_since_ns = now;
	t->taking = t->latest = u;
	t->began_ns = now;
	if (p->take ? p->take(p) : t->take(p))
		turns_wait(t, p);
	t->taking = NULL;
	end = clock_ns();
	u->spent_ns += end - now;
	return end;
}

/* Sessions that wait for long are not watched meanwhile. Each costs a system call, so the rest waits for the
 * next time. */
static void stop_watching(struct turns *t)
{
	struct turns_place *p;

	for (unsigned n = 0; n < STOP_WATCHING && (p = t->watched); n++) {
		unlist_watched(t, p);
		if (!p->waits || p->unwatched)
			continue;
		p->unwatched = true;
		t->unwatch(p);
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

/* Less than a slice ago the loop looked at the sockets, and nobody else is about who would have to wait. */
static bool may_go_on(const struct turns *t, uint64_t began, uint64_t now)
{
	return !turns_are_shared(t, now) && now - began < TURNS_SLICE_NS;
}

/* From `began` on. Returns the time after them. */
static uint64_t take_turns(struct turns *t, uint64_t began)
{
	uint64_t now = began;

	while (t->users) {
		now = take_turn(t, now);
		if (!may_go_on(t, began, now))
			break;
	}
	stop_watching(t);
	return now;
}

/* Being active is all it is for. */
static void on_idle(uv_idle_t *idle)
{
	(void)idle;
}

/*
 * What comes by memory costs 0.1 us to look at, sockets 1 us: one user alone has that looked at several times
 * for each look at these.
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
		any |= t->users != NULL;
		if (t->users || t->watched)
			now = take_turns(t, now);
	} while (any && may_go_on(t, began, now));
	t->is_checking = false;
	if (t->users)
		uv_idle_start(&t->idle, on_idle);
	else
		uv_idle_stop(&t->idle);
}

/* ---- From outside ---- */

void turns_init(struct turns *t, uv_loop_t *loop, bool (*take)(struct turns_place *place),
                void (*unwatch)(struct turns_place *place))
{
	*t = (struct turns){.take = take, .unwatch = unwatch};
	uv_check_init(loop, &t->check);
	uv_idle_init(loop, &t->idle);
	t->check.data = t;
	uv_check_start(&t->check, on_check);
	uv_unref((uv_handle_t *)&t->check);
	uv_unref((uv_handle_t *)&t->idle);
}

void turns_wait(struct turns *t, struct turns_place *p)
{
	if (p->waits)
		return;
	push(t, p->user, p);
	if (!t->is_checking) /* which most often gives it its turn */
		uv_idle_start(&t->idle, on_idle);
	if (p->listed || p->unwatched)
		return;
	list_watched(t, p);
}

void turns_wait_anew(struct turns *t, struct turns_place *p)
{
	bool waited = p->user->first != NULL;

	turns_wait(t, p);
	if (!waited)
		p->user->is_new = true;
}

void turns_leave(struct turns *t, struct turns_place *p)
{
	if (p->listed)
		unlist_watched(t, p);
	if (p->waits)
		take_out(t, p);
}

void turns_hold(struct turns *t, struct turns_user *u, enum turns_reason why)
{
	if (!u->held && u->first)
		unlink_user(t, u);
	u->held |= why;
}

void turns_release(struct turns *t, struct turns_user *u, enum turns_reason why)
{
	bool was_held = u->held;

	u->held &= ~(unsigned)why;
	if (!was_held || u->held || !u->first)
		return;
	link_user(t, u);
	uv_idle_start(&t->idle, on_idle);
}

bool turns_pays(const struct turns *t, const struct turns_user *u)
{
	return t->taking == u || (!t->taking && !t->users);
}

void turns_add(struct turns *t, struct turns_user *u, uint64_t ns)
{
	catch_up(t, u);
	u->spent_ns += ns;
}

void turns_charge(struct turns *t, struct turns_user *u)
{
	if (u != t->taking)
		turns_add(t, u, clock_ns() - t->began_ns);
}

bool turns_is_ahead(const struct turns *t, const struct turns_user *u)
{
	return u->spent_ns > t->clock_ns;
}
