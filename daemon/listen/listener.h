/* listener.h: the listening socket, inherited or bound here, and accepting. Loop thread only. */
#ifndef KOPS_LISTENER_H
#define KOPS_LISTENER_H

#include "config/config.h"
#include "session/session.h"

struct listener {
	struct sessions *sessions;
	const char *path;
	int fd;
	bool owns_path; /* bound here: to be unlinked */
	int lock_fd;    /* of the file beside it; -1: the socket is inherited */
	int reserve_fd; /* given up to accept and shed when descriptors run out */
	struct log_limit sheds;
	uv_poll_t poll;
	uv_timer_t retry; /* while there is no reserve descriptor */
	uv_timer_t flood; /* while there is a flood of connections */
	unsigned n_taken; /* connections of this second */
	uint64_t counted_since_ns;
	/* Its turns: one is a connection. */
	struct turns_user door;
	struct turns_place place;
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
