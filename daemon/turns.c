#include "turns.h"

#include <stddef.h>

#include "clock.h"
#include "session/session.h"

/* ---- Lists ---- */

/* Who had nothing to read saves up nothing. */
static void link_user(struct turns *t, struct turns_user *u)
{
	u->end = &u->first;
	u->prev = NULL;
	u->next = t->users;
	if (u->next)
		u->next->prev = u;
	t->users = u;
	if (u->spent_ns < t->clock_ns)
		u->spent_ns = t->clock_ns;
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

static void push(struct turns *t, struct turns_user *u, struct session *s)
{
	if (!u->first)
		link_user(t, u);
	s->place.next = NULL;
	s->place.waits = true;
	*u->end = s;
	u->end = &s->place.next;
}

static void remove_at(struct turns *t, struct turns_user *u, struct session **link)
{
	struct session *s = *link;

	*link = s->place.next;
	if (!*link)
		u->end = link;
	s->place.waits = false;
	if (!u->first)
		unlink_user(t, u);
}

/* ---- Turns ---- */

static struct turns_user *user_of(const struct session *s)
{
	return &s->account->turns;
}

static struct turns_user *pick(const struct turns *t)
{
	struct turns_user *best = t->users;

	for (struct turns_user *u = best; u; u = u->next)
		if (u->spent_ns < best->spent_ns)
			best = u;
	return best;
}

/* From `now` on. Returns the time after it. */
static uint64_t take_turn(struct turns *t, uint64_t now)
{
	struct turns_user *u = pick(t);
	struct session *s = u->first;
	struct account *account = s->account;
	uint64_t end;

	t->clock_ns = u->spent_ns;
	remove_at(t, u, &u->first);
	account_ref(account); /* the turn may be the session's last */
	if (t->take(s))
		turns_wait(t, s);
	end = clock_ns();
	u->spent_ns += end - now;
	account_unref(t->accounts, account);
	return end;
}

/* Sessions that wait for long are not watched meanwhile. */
static void stop_watching(struct turns *t)
{
	struct session *s;

	while ((s = t->watched)) {
		t->watched = s->place.next_watched;
		s->place.listed = false;
		if (!s->place.waits || s->place.unwatched)
			continue;
		s->place.unwatched = true;
		session_unwatch(s);
	}
}

/* Being active is all it is for. */
static void on_idle(uv_idle_t *idle)
{
	(void)idle;
}

static void on_check(uv_check_t *check)
{
	struct turns *t = check->data;
	uint64_t now, end;

	if (!t->users)
		return;
	now = clock_ns();
	end = now + TURNS_SLICE_NS;
	while (t->users && now < end)
		now = take_turn(t, now);
	stop_watching(t);
	if (t->users)
		uv_idle_start(&t->idle, on_idle);
	else
		uv_idle_stop(&t->idle);
}

/* ---- From outside ---- */

void turns_init(struct turns *t, uv_loop_t *loop, struct accounts *accounts,
                bool (*take)(struct session *session))
{
	*t = (struct turns){.take = take, .accounts = accounts};
	uv_check_init(loop, &t->check);
	uv_idle_init(loop, &t->idle);
	t->check.data = t;
	uv_check_start(&t->check, on_check);
	uv_unref((uv_handle_t *)&t->check);
	uv_unref((uv_handle_t *)&t->idle);
}

void turns_wait(struct turns *t, struct session *s)
{
	if (s->place.waits)
		return;
	push(t, user_of(s), s);
	if (s->place.listed || s->place.unwatched)
		return;
	s->place.listed = true;
	s->place.next_watched = t->watched;
	t->watched = s;
}

static void unlist(struct turns *t, struct session *s)
{
	struct session **link = &t->watched;

	if (!s->place.listed)
		return;
	while (*link != s)
		link = &(*link)->place.next_watched;
	*link = s->place.next_watched;
	s->place.listed = false;
}

void turns_leave(struct turns *t, struct session *s)
{
	struct turns_user *u = user_of(s);
	struct session **link = &u->first;

	unlist(t, s);
	if (!s->place.waits)
		return;
	while (*link != s)
		link = &(*link)->place.next;
	remove_at(t, u, link);
}

bool turns_is_ahead(const struct turns *t, const struct turns_user *u)
{
	return u->spent_ns > t->clock_ns;
}
