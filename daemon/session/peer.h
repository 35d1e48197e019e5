/*
 * peer.h: who is at the other end of a connection, as the kernel vouches for it: the process that connected,
 * with the groups that it had then.
 */
#ifndef KOPS_PEER_H
#define KOPS_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct peer {
	uid_t uid;
	pid_t pid;
	gid_t *groups; /* its own first; NULL: there was no memory for them */
	size_t n_groups;
};

/* KOPS_E_SYSTEM. To be freed with peer_free(). */
int peer_read(int fd, struct peer *ret);
void peer_free(struct peer *peer);

/*
 * The name of a process (/proc/PID/comm), made printable; "" where it cannot be seen. It is what the process
 * likes, and after its end perhaps another's. Does not wait: the kernel has the name in its own memory.
 */
#define PEER_NAME_BYTES 65
void peer_read_name(pid_t pid, char name[PEER_NAME_BYTES]);

bool peer_is_in(const struct peer *peer, gid_t group);

#endif
