/*
 * doors.h: listening sockets (doors), whose connections are accepted in turns. Loop thread only.
 *
 * Everybody may use the main door. A user who connected once gets a door of its own, which nobody else can use
 * (user_sockets.h). So a flood of others' connections does not delay that user.
 */
#ifndef KOPS_DOORS_H
#define KOPS_DOORS_H

#include "listen/user_sockets.h"
#include "session/sessions.h"

/* For 64 users, if there are descriptors for that, and one that libuv has not released yet. */
#define DOORS_USER_SLOTS 65u

struct doors;

struct door {
	struct doors *all;
	int fd;                  /* -1: the door is unused */
	struct account *account; /* its user, with a reference; NULL: everybody's */
	uint64_t used_ns;        /* time of its last connection */
	bool is_closing;         /* libuv still has the poll handle */
	uv_poll_t poll;
	struct turns_waiter waiter; /* a turn accepts one connection */
};

struct doors {
	struct sessions *sessions;
	struct user_sockets files;
	struct door main, users[DOORS_USER_SLOTS];
	unsigned n_users, users_max;
	uv_timer_t renew;            /* until all users' doors have to be closed */
	struct turns_user everybody; /* the main door's turns */
	/* For connections that cannot be accepted. */
	int reserve_fd; /* closed to accept and shed a connection when there are no more descriptors */
	struct log_limit sheds;
	uv_timer_t retry; /* while the doors are not watched */
	int accept_error; /* of the last attempt; 0: it succeeded */
	/* For floods at the main door. */
	uv_timer_t flood; /* runs during a flood */
	unsigned n_taken; /* connections since counted_since_ns */
	uint64_t counted_since_ns;
};

/* Initializes doors; doors_close() may be called from now on. */
void doors_init(struct doors *doors, struct sessions *sessions);
/* Listens on the socket, which stays the caller's, without accepting yet. KOPS_E_SYSTEM with a sentence. */
int doors_open(struct doors *doors, int fd, char why[WHY_BYTES]);
void doors_start(struct doors *doors);
/* Stops accepting, and closes users' doors. */
void doors_stop(struct doors *doors);
/* Closes the descriptors. Needs no loop. */
void doors_close(struct doors *doors);

#endif
