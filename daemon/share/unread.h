/*
 * unread.h: descriptors that clients have not read yet. Loop thread only.
 *
 * The kernel lets one user's processes send only as many descriptors as the sender may have open
 * (RLIMIT_NOFILE) before they are read. Beyond that no client gets lent memory or a ring, whoever leaves
 * descriptors unread. A socket keeps what was sent until its owner closes it, even after the session has ended.
 * So kopsd counts them by user. If a session ends with some unread, its connection stays open until they are
 * read or the client closes its end.
 *
 * Like closing_add(), this leaves some for everybody: a user alone may leave half of unread_fds_max, n users n
 * / (n + 1) of it. kopsd learns what a client has read only by looking: at the client's next descriptor, when
 * the limit is met, and after a while.
 */
#ifndef KOPS_UNREAD_H
#define KOPS_UNREAD_H

#include <uv.h>

#include "share/account.h"

/* Unread descriptors of one connection. Private, except `kept`. */
struct unread {
	struct list_link link;  /* in unreads.all */
	struct unread **holder; /* the session's pointer to this; NULL: the session ended */
	struct account *account;
	int fd;
	unsigned n;
	unsigned kept; /* of n, those that the socket has not taken yet */
};

struct unreads {
	struct accounts *accounts;
	struct list all; /* the one looked at last is last */
	uv_timer_t timer;
	uint64_t look_ms;
};

void unreads_init(struct unreads *all, uv_loop_t *timers, struct accounts *accounts);
/* Closes all connections that stayed open. There must be no sessions. */
void unreads_clear(struct unreads *all);

/*
 * Counts one more descriptor for this user on the connection fd. *holder is NULL if the client has read all, as
 * far as is known. Returns false if too many wait unread, or if out of memory.
 */
bool unread_add(struct unreads *all, struct unread **holder, struct account *account, int fd);
/* The error message for the client. */
extern const char unread_why[];
/* Uncounts a descriptor that could not be sent. */
void unread_take_back(struct unreads *all, struct unread *unread);
/* Ends the session's use: its connection is closed, now or later. NULL allowed. */
void unread_leave(struct unreads *all, struct unread *unread, struct account *account, int fd);

#endif
