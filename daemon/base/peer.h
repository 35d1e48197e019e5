/*
 * peer.h: the process that made a connection, as the kernel vouches for it, with the groups that it had then.
 */
#ifndef KOPS_PEER_H
#define KOPS_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct peer {
	uid_t uid;
	pid_t pid;
	gid_t *groups; /* the primary group first; NULL: out of memory */
	size_t n_groups;
};

/* Reads the peer, to be freed with peer_free(). KOPS_E_SYSTEM: tell the client peer_unread_why. */
int peer_read(int fd, struct peer *ret);
void peer_free(struct peer *peer);
extern const char peer_unread_why[];

/*
 * The name of a process (/proc/PID/comm), made printable; "" if it cannot be read. The process can choose it,
 * and after its end the name may be another process's. Does not block: the kernel has the name in its own
 * memory.
 */
#define PEER_NAME_BYTES 65
void peer_read_name(pid_t pid, char name[PEER_NAME_BYTES]);

bool peer_is_in(const struct peer *peer, gid_t group);

#endif
