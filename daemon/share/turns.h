/*
 * turns.h: decides whose request is read next. Loop thread only.
 *
 * A session with something to read waits for its turn. A turn is one datagram, from the bytes to the reply or
 * the queued job, or a few runs of a ring. Users share the loop by the time that their turns take (start-time
 * fair queuing, as in scheduler.h); sessions of one user take turns in rotation. After each turn the loop looks
 * for new work. So a user with a thousand busy sessions delays another's request by one turn. A look costs 1 to
 * 2 us, so a user alone takes turns for a slice of time between looks.
 *
 * A user with new work runs before users who were already waiting, unless it is far ahead of its share.
 * Otherwise a user who wants little would pay for each request with a wait at the next one.
 *
 * kopsd learns whose a connection is only when it accepts it. So the common listening socket (a door) shares
 * the loop as one more user, and refused connections take no more than that share. Their users are charged too:
 * a flood of connections costs its own user's sessions, not the connections of others.
 *
 * A turn should take at most 10 us. Longer work takes several turns, which the session gets before others of
 * its user. So each user is in the middle of at most one thing.
 *
 * A user may be held: its sessions wait and get no turn until it is released.
 *
 * A session that still waits at the loop's next look is not watched until its turn. Otherwise the kernel would
 * report all waiting sessions at every look.
 */
#ifndef KOPS_TURNS_H
#define KOPS_TURNS_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/fair.h"
#include "base/list.h"

#define TURNS_SLICE_NS 25000u
/* A user with new work goes first unless it is further ahead of its share than this. */
#define TURNS_AHEAD_NS 200000u
/* A user is alone if no other had a turn for this long. */
#define TURNS_ALONE_NS 20000000u

struct turns_waiter;
struct turns_user;

struct turns {
	uv_check_t check;          /* runs after the loop looked at its sockets */
	uv_idle_t idle;            /* keeps the loop from sleeping while any user waits */
	bool is_checking;          /* on_check() is running; it decides at its end whether the loop may sleep */
	struct fair_queue users;   /* with waiting sessions and not held; their cost: ns of the loop */
	struct list watched;       /* waiters that began to wait since the last check and are still watched */
	struct turns_user *taking; /* the user whose turn it is */
	uint64_t began_ns;         /* when that turn began */
	struct turns_user *latest; /* the user of the last turn; it may be freed */
	uint64_t alone_since_ns;   /* start of its first turn since another user's */
	/* Called before turns are taken: calls turns_wait() for work that did not come by a socket. Returns
	 * true if it did other such work. May be NULL. */
	bool (*look)(struct turns *turns);
	/* Takes a turn. Returns true if there may be more to read. Frees neither the waiter nor its user. */
	bool (*take)(struct turns_waiter *waiter);
	/* Stops watching a waiter that has to wait. It stays unwatched until a turn finds nothing more to
	 * read. */
	void (*unwatch)(struct turns_waiter *waiter);
};

/* A user, as part of an account. */
struct turns_user {
	struct fair_party party; /* waits while there are waiters, unless the user is held */
	struct list waiters;     /* waiting sessions, in order */
	unsigned held;           /* bits of enum turns_reason; 0: not held */
	bool is_new;             /* it has had no turn since it began to wait */
};

/* Why a user is held. */
enum turns_reason {
	TURNS_CLOSING = 1, /* many descriptors are yet to be closed: share/closing.h */
	TURNS_SLOW = 2,    /* its sockets are slow: share/slow.h */
};

/* The part of a session or door that waits for turns. Its user is set before it waits. */
struct turns_waiter {
	struct list_link link;    /* in its user's waiters, while it waits */
	struct list_link watched; /* in turns.watched */
	struct turns_user *user;
	bool unwatched;
	bool midway;                               /* its next turn goes before others of its user */
	bool (*take)(struct turns_waiter *waiter); /* called instead of turns.take, unless NULL */
};

static inline bool turns_is_waiting(const struct turns_waiter *waiter)
{
	return list_has(&waiter->link);
}

/* Returns true if a user waits for a turn and is not held. */
static inline bool turns_are_wanted(const struct turns *turns)
{
	return !list_is_empty(&turns->users.waiting);
}

void turns_init(struct turns *turns, uv_loop_t *loop, bool (*take)(struct turns_waiter *waiter),
                void (*unwatch)(struct turns_waiter *waiter));

/* Makes a waiter with something to read wait for its turn, unless it does already. */
void turns_wait(struct turns *turns, struct turns_waiter *waiter);

/* The same for a new waiter. Also marks the user as new, unless another of its waiters is waiting. */
void turns_wait_anew(struct turns *turns, struct turns_waiter *waiter);

/* Stops waiting: the waiter is freed, or must not be read for now. */
void turns_leave(struct turns_waiter *waiter);

/* Returns true if the loop's time is charged to the user: it is its turn, or nobody waits for one. */
bool turns_pays(const struct turns *turns, const struct turns_user *user);

/* A held user gets no turn until turns_release() was called for each reason. Both may be called repeatedly. */
void turns_hold(struct turns_user *user, enum turns_reason why);
void turns_release(struct turns *turns, struct turns_user *user, enum turns_reason why);

/* Returns true if more than one user had turns recently. */
bool turns_are_shared(const struct turns *turns, uint64_t now);
/* Returns true if a user other than this one had. */
bool turns_have_others(const struct turns *turns, const struct turns_user *user, uint64_t now);

/* Charges the current turn to this user too, unless it is its own. */
void turns_charge(struct turns *turns, struct turns_user *user);

/* Charges ns of work outside its turns to this user. */
void turns_add(struct turns *turns, struct turns_user *user, uint64_t ns);

/* Returns true if the user is ahead of its share. It must not escape that by reconnecting. */
bool turns_is_ahead(const struct turns *turns, const struct turns_user *user);

#endif
