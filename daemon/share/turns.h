/*
 * turns.h: whose requests are read next. Loop thread only.
 *
 * A session with something to read waits for its turn; one turn is one datagram, from the bytes to the reply or
 * the queued job, or a few runs of a ring. Users share the loop by the time that their turns take (start-time
 * fair queuing, as in scheduler.h), sessions of one user go round. So a user with a thousand busy sessions
 * delays another one's request by the turn at hand: after each the loop looks who else has come. A look costs 1
 * to 2 us, so while there is one user only it takes turns for a slice of time.
 *
 * Who comes anew goes before those that have waited since their last turn, unless it has had much more than its
 * share: else somebody who wants little would pay for each request with a wait at the next one.
 *
 * Whose a connection is shows only when it is taken, so the door that takes everybody's shares the loop as one
 * more user: who is refused as often as it can connect does not take more of it than that. Whoever it was pays
 * too: a flood of connections is taken at the expense of what its user's sessions want, not of others'
 * connections.
 *
 * A turn should take 10 us at most. What takes longer is done in several, in which its session goes on before
 * others of its user, so that each user is midway in one thing at most.
 *
 * A user may be held: its sessions wait, and no turn comes, until it is released.
 *
 * A session that still waits when the loop looks again is not watched until its turn comes: the kernel would
 * name all that wait at every look.
 */
#ifndef KOPS_TURNS_H
#define KOPS_TURNS_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/fair.h"
#include "base/list.h"

#define TURNS_SLICE_NS 25000u
/* So much more than its share a user may have had that goes first. */
#define TURNS_AHEAD_NS 200000u
/* A user is alone when no other had a turn for so long. */
#define TURNS_ALONE_NS 20000000u

struct turns_place;
struct turns_user;

struct turns {
	uv_check_t check;          /* after the sockets were looked at */
	uv_idle_t idle;            /* while any waits the loop does not sleep */
	bool is_checking;          /* after which it is decided whether the loop may sleep */
	struct fair_queue users;   /* with waiting sessions that are not held; by ns of the loop's time */
	struct list watched;       /* places that wait since the last check, perhaps, and are watched still */
	struct turns_user *taking; /* whose turn it is just now */
	uint64_t began_ns;         /* when that turn did */
	struct turns_user *latest; /* whose turn was the last one; it may be freed by now */
	uint64_t alone_since_ns;   /* the first of its turns that no other user's came between */
	/* Before turns are taken: whoever has come another way than by a socket is to wait. True: it did other
	 * things that had come so. NULL: nothing does. */
	bool (*look)(struct turns *turns);
	/* A turn; true: it may have more to read. Neither it nor its user is freed within. */
	bool (*take)(struct turns_place *place);
	/* It has to wait: until a turn of it says that there is no more, nobody needs to watch it. */
	void (*unwatch)(struct turns_place *place);
};

/* A user, as part of an account. */
struct turns_user {
	struct fair_party party; /* waits while `places` holds any, unless it is held */
	struct list places;      /* waiting sessions, in order */
	unsigned held;           /* by enum turns_reason; 0: it is not */
	bool is_new;             /* it had no turn since it came to wait */
};

/* Why a user is held. */
enum turns_reason {
	TURNS_CLOSING = 1, /* much of it has yet to be closed: share/closing.h */
	TURNS_SLOW = 2,    /* its sockets are slow: share/slow.h */
};

/* A session or a door, as part of one. Its user is set before it waits. */
struct turns_place {
	struct list_link link;    /* among its user's, while it waits */
	struct list_link watched; /* among turns.watched */
	struct turns_user *user;
	bool unwatched;
	bool midway;                             /* its next turn goes before others of its user */
	bool (*take)(struct turns_place *place); /* instead of turns.take; NULL: that */
};

static inline bool turns_place_waits(const struct turns_place *place)
{
	return list_has(&place->link);
}

/* Whether any user waits for a turn, and may have one. */
static inline bool turns_are_wanted(const struct turns *turns)
{
	return !list_is_empty(&turns->users.waiting);
}

void turns_init(struct turns *turns, uv_loop_t *loop, bool (*take)(struct turns_place *place),
                void (*unwatch)(struct turns_place *place));

/* It has something to read: it waits for its turn, if it does not yet. */
void turns_wait(struct turns *turns, struct turns_place *place);

/* As above, for one that is new: with it its user comes anew, also in a turn of its own, if no other of its
 * places waits. */
void turns_wait_anew(struct turns *turns, struct turns_place *place);

/* It goes, or must not be read for now. */
void turns_leave(struct turns_place *place);

/* Whether the loop's time is the user's just now: it is its turn, or nobody waits for one. */
bool turns_pays(const struct turns *turns, const struct turns_user *user);

/* No turn of the user's begins before turns_release() for each of the reasons. Both may be called again. */
void turns_hold(struct turns_user *user, enum turns_reason why);
void turns_release(struct turns *turns, struct turns_user *user, enum turns_reason why);

/* Whether more than one user had turns of late. */
bool turns_are_shared(const struct turns *turns, uint64_t now);
/* Whether another user than this one had. */
bool turns_have_others(const struct turns *turns, const struct turns_user *user, uint64_t now);

/* The turn at hand is this user's expense too, if it is not anyway. */
void turns_charge(struct turns *turns, struct turns_user *user);

/* Work for this user outside its turns took so long. */
void turns_add(struct turns *turns, struct turns_user *user, uint64_t ns);

/* Whether the user has had more than its share so far, which it must not escape from. */
bool turns_is_ahead(const struct turns *turns, const struct turns_user *user);

#endif
