/*
 * unread.h: descriptors that wait unread at clients. Loop thread only.
 *
 * The kernel lets one user's processes have only so many descriptors under way: as many as the sender may have
 * open (RLIMIT_NOFILE). Beyond that no client gets lent memory or a ring, whoever leaves them unread; and a
 * socket keeps what was sent until its owner closes it, also when the session has long ended. So they are
 * counted by user, and the connection of a session that ended with some unread stays open until they are read
 * or the client's end of it is closed.
 *
 * Like closing_add(), it leaves some to everybody: a user alone may leave half of unread_fds_max, n users
 * n / (n + 1) of it. That a client has read is known only when we look: at its next one, when the limit is met,
 * and after a while.
 */
#ifndef KOPS_UNREAD_H
#define KOPS_UNREAD_H

#include <uv.h>

#include "share/account.h"

/* Of one connection; private but for `kept`. */
struct unread {
	struct list_link link;  /* in unreads.all */
	struct unread **holder; /* the session's pointer here; NULL: it ended */
	struct account *account;
	int fd;
	unsigned n;
	unsigned kept; /* of these: that the socket has not taken yet */
};

struct unreads {
	struct accounts *accounts;
	struct list all; /* looked at last: at the end */
	uv_timer_t timer;
	uint64_t look_ms;
};

void unreads_init(struct unreads *all, uv_loop_t *timers, struct accounts *accounts);
/* Closes all connections that stayed open. No session may be there. */
void unreads_clear(struct unreads *all);

/*
 * Another descriptor goes to this user by the connection fd, and counts. *holder is NULL where it has read all,
 * as far as we know. False: too many wait unread, or there is no memory.
 */
bool unread_add(struct unreads *all, struct unread **holder, struct account *account, int fd);
/* For the client. */
extern const char unread_why[];
/* It could not be sent. */
void unread_take_back(struct unreads *all, struct unread *unread);
/* The session ends: its connection is closed, now or later. NULL allowed. */
void unread_leave(struct unreads *all, struct unread *unread, struct account *account, int fd);

#endif
