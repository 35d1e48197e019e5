/*
 * user_socket.h: the paths of single users' sockets, for the daemon that makes them and clients that look for
 * theirs: docs/protocol.md, "Connections". Thread-safe; nothing blocks.
 */
#ifndef KOPS_USER_SOCKET_H
#define KOPS_USER_SOCKET_H

#include <stdbool.h>
#include <sys/types.h>
#include <sys/un.h>

/* Their folder is named like everybody's socket, with this suffix. */
#define USER_SOCKET_SUFFIX ".users"

/* The address of the user's socket: the uid's digits, in the folder beside everybody's socket at this path.
 * Returns false if its path is too long, or if there is none. */
bool user_socket_address(const char *everybodys, uid_t uid, struct sockaddr_un *ret);

/* Returns true if only root and the owner of the folder of everybody's socket can have put something there.
 * Otherwise it could be anybody's, as in /tmp. */
bool user_socket_is_safe(const char *everybodys);

#endif
