/* request.h: one datagram, or run of a ring → validated → done or under way, in one turn or several. */
#ifndef KOPS_REQUEST_H
#define KOPS_REQUEST_H

#include "session/session.h"

/*
 * Handles a datagram in desk->in with its descriptor, of which it disposes. 0, also when the request was bad
 * and got an error reply; KOPS_E_PROTOCOL with a reason in why when the session has to end.
 */
int request_handle(struct session *session, const struct received *received, char why[WHY_BYTES]);

/* Takes a few runs out of the session's ring. KOPS_E_PROTOCOL with a reason in why. */
int request_take_runs(struct session *session, char why[WHY_BYTES]);

/* Goes on with the request in which the session is midway, with the same answers; or it is not gone on with. */
int request_resume(struct session *session, char why[WHY_BYTES]);
void request_abandon(struct session *session);

#endif
