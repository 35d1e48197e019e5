/*
 * user_socket.h: where the sockets of single users are, for the daemon that makes them and clients that look
 * for theirs: docs/protocol.md, "Connections". Thread-safe; nothing blocks.
 */
#ifndef KOPS_USER_SOCKET_H
#define KOPS_USER_SOCKET_H

#include <stdbool.h>
#include <sys/types.h>
#include <sys/un.h>

/* Their folder has the name of everybody's socket with this behind it. */
#define USER_SOCKET_SUFFIX ".users"

/* That of the user `uid` beside everybody's at this path: in a folder, by the uid's digits. False: its path is
 * too long, or there is none. */
bool user_socket_address(const char *everybodys, uid_t uid, struct sockaddr_un *ret);

/* Whether only root and the owner of the folder that everybody's socket is in can have put something beside it;
 * else it could be anybody's, as in /tmp. */
bool user_socket_is_safe(const char *everybodys);

#endif
