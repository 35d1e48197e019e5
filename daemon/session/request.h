/* request.h: one datagram → validated → done or under way. */
#ifndef KOPS_REQUEST_H
#define KOPS_REQUEST_H

#include "job/buffer.h"
#include "session/session.h"

/*
 * Handles server->in[0, len) with its descriptors, of which it disposes; fds_lost: this process had no room for
 * them. 0, also when the request was bad and got an error reply; KOPS_E_PROTOCOL with a reason in why when the
 * session has to end.
 */
int request_handle(struct session *session, size_t len, int *fds, unsigned n_fds, bool fds_lost,
                   char why[WHY_BYTES]);

/* Answers the Alloc that made the buffer. */
void request_buffer_settled(struct buffer *buffer);
/* Answers its Drop. */
void request_buffer_gone(struct buffer *buffer);

/* Answers the pings whose canaries are all back. */
void request_canaries_back(struct server *server);
/* Forgets the pings of a session that goes. */
void request_forget(struct session *session);

#endif
