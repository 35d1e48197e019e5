/*
 * user_sockets.h: the files of sockets that only one user may connect to, SOCKET.users/UID. Loop thread only.
 *
 * Everybody's connections queue at one socket, so a flood of them delays later ones. A user who connected
 * before has a queue of its own here, which no other user can fill. The kernel enforces it: an ACL on the
 * socket names its user. An ACL on the folder names those who may connect to everybody's socket.
 *
 * Clients try their own socket first, if nobody but the daemon's user can have put it there. So there are none
 * if others may write to the socket's folder, such as /tmp. Nor are there any if everybody's socket itself has
 * an ACL, or if the file system has no ACLs.
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
	int folder_fd;                            /* -1: there are no such sockets */
	struct stat let_in;                       /* everybody's socket, when the folder's ACL was last set */
};

/* Opens the folder beside the listening socket fd, which is bound to a path. If that fails, the log says
 * why. */
void user_sockets_open(struct user_sockets *sockets, int fd);

/* Returns true if the folder's ACL still matches who may connect to everybody's socket. */
bool user_sockets_are_current(const struct user_sockets *sockets);

/* Makes a socket that listens with a queue of `backlog`, and updates the folder's ACL. -1: it cannot be
 * made. */
int user_sockets_add(struct user_sockets *sockets, uid_t uid, int backlog);
void user_sockets_remove(const struct user_sockets *sockets, uid_t uid);

/* Removes the folder; its sockets are removed before. May be called repeatedly. */
void user_sockets_close(struct user_sockets *sockets);

/* Returns true if `folder`, a path of that many bytes, is their folder. */
bool user_sockets_are_in(const struct user_sockets *sockets, const char *folder, size_t bytes);

#endif
