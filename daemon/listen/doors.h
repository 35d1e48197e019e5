/*
 * doors.h: listening sockets, at which connections are accepted in turns. Loop thread only.
 *
 * Everybody may come by the main door. Who got in once has a door of its own too, by which nobody else can come
 * (user_sockets.h), so that a flood of others' connections is not before theirs.
 */
#ifndef KOPS_DOORS_H
#define KOPS_DOORS_H

#include "listen/user_sockets.h"
#include "session/session.h"

/* For 64 users, where there are descriptors for that; and one that libuv has not let go of yet. */
#define DOORS_PLACES 65u

struct doors;

struct door {
	struct doors *all;
	int fd;                  /* -1: it is free */
	struct account *account; /* whose it is, with a reference; NULL: everybody's */
	uint64_t used_ns;        /* when somebody came by it last */
	bool is_closing;         /* libuv has the poll handle still */
	uv_poll_t poll;
	struct turns_place place; /* a turn is a connection */
};

struct doors {
	struct sessions *sessions;
	struct user_sockets files;
	struct door main, users[DOORS_PLACES];
	unsigned n_users, users_max;
	uv_timer_t renew;            /* when all of them have to go */
	struct turns_user everybody; /* the main door's turns */
	/* Connections that cannot be accepted. */
	int reserve_fd; /* given up to accept and shed, where there are no more descriptors */
	struct log_limit sheds;
	uv_timer_t retry; /* while nobody is watched */
	int accept_error; /* of the latest attempt; 0: it succeeded */
	/* Floods at the main door. */
	uv_timer_t flood; /* while there is one */
	unsigned n_taken; /* connections of this second */
	uint64_t counted_since_ns;
};

/* From then on they may be closed. */
void doors_init(struct doors *doors, struct sessions *sessions);
/* Listens on the socket, which stays the caller's, and accepts nobody yet. KOPS_E_SYSTEM with a sentence. */
int doors_open(struct doors *doors, int fd, char why[WHY_BYTES]);
void doors_start(struct doors *doors);
/* Accepts no more; users' doors are gone. */
void doors_stop(struct doors *doors);
/* Closes the descriptors; no loop is needed any more. */
void doors_close(struct doors *doors);

#endif
