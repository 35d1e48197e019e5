#include "base/peer.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kops_types.h"
#include "message.h"
#include "printable.h"

const char peer_unread_why[] = "kopsd cannot read the credentials of this connection; try again later";

static void read_groups(int fd, gid_t own, struct peer *peer)
{
	socklen_t bytes = 0;

	getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, NULL, &bytes); /* fails, and returns the size */
	peer->groups = malloc(sizeof *peer->groups + bytes);
	if (!peer->groups)
		return;
	peer->groups[0] = own;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, peer->groups + 1, &bytes) < 0)
		bytes = 0;
	peer->n_groups = 1 + bytes / sizeof *peer->groups;
}

int peer_read(int fd, struct peer *ret)
{
	struct ucred cred;
	socklen_t len = sizeof cred;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return KOPS_E_SYSTEM;
	*ret = (struct peer){.uid = cred.uid, .pid = cred.pid};
	read_groups(fd, cred.gid, ret);
	return 0;
}

void peer_free(struct peer *peer)
{
	free(peer->groups);
}

void peer_read_name(pid_t pid, char name[PEER_NAME_BYTES])
{
	char path[32];
	ssize_t n = 0;
	int fd;

	name[0] = '\0';
	snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
	fd = pid > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1; /* 0: the process is in another pid namespace */
	if (fd < 0)
		return;
	n = read(fd, name, PEER_NAME_BYTES - 1);
	close(fd);
	n -= n > 0 && name[n - 1] == '\n';
	name[n > 0 ? n : 0] = '\0';
	message_make_text(name);
	make_printable(name);
}

bool peer_is_in(const struct peer *peer, gid_t group)
{
	for (size_t i = 0; i < peer->n_groups; i++)
		if (peer->groups[i] == group)
			return true;
	return false;
}
