/*
 * user_sockets.h: the files of sockets that only one user may connect to, SOCKET.users/UID. Loop thread only.
 *
 * Everybody's connections queue at one socket, so a flood of them is before whoever comes then. A user that was
 * welcome before has a queue of its own here, which no other user can fill. The kernel sees to it: an ACL on
 * the socket names its user, and one on the folder those who may connect to everybody's socket.
 *
 * Clients look for theirs before they turn to everybody's, if nobody but the daemon's user can have put it
 * there; so there are none where others may write to the socket's folder, as to /tmp. Nor are there any where
 * everybody's socket has an ACL itself, or the file system knows none.
 */
#ifndef KOPS_USER_SOCKETS_H
#define KOPS_USER_SOCKETS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/un.h>

#define USER_SOCKETS_PATH_BYTES sizeof(((struct sockaddr_un *)NULL)->sun_path)

struct user_sockets {
	char everybodys[USER_SOCKETS_PATH_BYTES]; /* the path of everybody's socket */
	int folder_fd;                            /* -1: there are none */
	struct stat let_in; /* everybody's socket, when the folder last let in who may connect to it */
};

/* Beside the listening socket fd, bound to a path. Says in the log why there are none. */
void user_sockets_open(struct user_sockets *sockets, int fd);

/* Whether the folder still lets in who may connect to everybody's socket. */
bool user_sockets_are_current(const struct user_sockets *sockets);

/* A new one that listens with this queue. From now on the folder lets in who may connect to everybody's socket
 * now. -1: it cannot be made. */
int user_sockets_add(struct user_sockets *sockets, uid_t uid, int backlog);
void user_sockets_remove(const struct user_sockets *sockets, uid_t uid);

/* Takes the folder away; the sockets are removed. May be called again. */
void user_sockets_close(struct user_sockets *sockets);

/* Whether that is their folder, by its path of so many bytes. */
bool user_sockets_are_in(const struct user_sockets *sockets, const char *folder, size_t bytes);

#endif
