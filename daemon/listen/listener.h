/* listener.h: the socket that clients connect to, inherited or bound here. Loop thread only. */
#ifndef KOPS_LISTENER_H
#define KOPS_LISTENER_H

#include "config/config.h"
#include "listen/doors.h"

struct listener {
	const char *path;
	int fd;
	bool owns_path; /* bound here: to be unlinked */
	int lock_fd;    /* of the file beside it; -1: the socket is inherited */
	struct doors doors;
};

/*
 * Opens the socket and the reserve descriptor; accepts nobody yet. path: as in the settings, to be bound where
 * no socket is inherited. KOPS_E_INVALID, KOPS_E_EXISTS (another kopsd is there) or KOPS_E_SYSTEM with a
 * sentence in why; to be closed then too.
 */
int listener_open(struct listener *listener, struct sessions *sessions, const char *path,
                  char why[CONFIG_WHY_BYTES]);
void listener_start(struct listener *listener);
/* Accepts no more and takes the path away, so that nobody connects to a daemon that is going. */
void listener_stop(struct listener *listener);
/* Takes the path away, if it is ours. Callable at any time. */
void listener_unlink(struct listener *listener);
/* Closes the descriptors. */
void listener_close(struct listener *listener);

#endif
