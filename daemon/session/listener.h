/* listener.h: the listening socket, inherited or bound here, and accepting. */
#ifndef KOPS_LISTENER_H
#define KOPS_LISTENER_H

#include "server.h"

/*
 * Opens s->listen_fd and the reserve descriptor; accepts nobody yet. KOPS_E_INVALID, KOPS_E_EXISTS (another
 * kopsd is there) or KOPS_E_SYSTEM with a sentence in why.
 */
int listener_open(struct server *s, char why[CONFIG_WHY_BYTES]);
void listener_start(struct server *s);
/* Accepts no more and takes the path away, so that nobody connects to a daemon that is going. */
void listener_stop(struct server *s);
/* Closes the descriptors. */
void listener_close(struct server *s);

#endif
