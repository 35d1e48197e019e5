#include "session/peer.h"

#include <stdlib.h>
#include <sys/socket.h>

#include "kops_types.h"

static void read_groups(int fd, gid_t own, struct peer *peer)
{
	socklen_t bytes = 0;

	getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, NULL, &bytes); /* fails, and says how much there is */
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

bool peer_is_in(const struct peer *peer, gid_t group)
{
	for (size_t i = 0; i < peer->n_groups; i++)
		if (peer->groups[i] == group)
			return true;
	return false;
}
