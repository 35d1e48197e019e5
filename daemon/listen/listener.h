/* listener.h: the socket that clients connect to, inherited or bound here. Loop thread only. */
#ifndef KOPS_LISTENER_H
#define KOPS_LISTENER_H

#include "config/config.h"
#include "listen/doors.h"

struct listener {
	const char *path;
	int fd;
	bool owns_path; /* bound here, so it must be unlinked */
	int lock_fd;    /* of the lock file; -1: the socket is inherited */
	struct doors doors;
};

/*
 * Opens the socket and the reserve descriptor, without accepting yet. path: from the settings; bound if no
 * socket is inherited. KOPS_E_INVALID, KOPS_E_EXISTS (another kopsd is there) or KOPS_E_SYSTEM with a sentence
 * in why; it must be closed then too.
 */
int listener_open(struct listener *listener, struct sessions *sessions, const char *path,
                  char why[CONFIG_WHY_BYTES]);
void listener_start(struct listener *listener);
/* Stops accepting and removes the path, so that nobody connects to a daemon that is ending. */
void listener_stop(struct listener *listener);
/* Removes the path, if it was bound here. May be called at any time. */
void listener_unlink(struct listener *listener);
/* Closes the descriptors. */
void listener_close(struct listener *listener);

#endif
