/*
 * verbs.h: what the handlers of single verbs share with the table in request.c.
 *
 * A handler sends the reply, now or later, and returns 0; or it returns the status to reply with, its sentence
 * in r->why (empty: the status's own text).
 */
#ifndef KOPS_VERBS_H
#define KOPS_VERBS_H

#include "message.h"
#include "session/session.h"

struct request {
	struct session *session;
	uint64_t id, arrived_ns;
	const Kops__V1__Request *msg; /* in the arena: gone with the request */
	int *fds;                     /* -1 where taken over */
	unsigned n_fds;
	bool fds_lost; /* descriptors came and we had no room for them */
	char why[WHY_BYTES];
	uint64_t retry_after_us; /* with KOPS_E_BUSY */
};

#define X(name, NAME, function, state, fds_max) int function(struct request *r);
#include "session/verbs.def"
#undef X

/* verb/ping.c: a canary has come back: answers the Pings that waited for all of them. */
void sessions_canaries_back(struct sessions *all);

#endif
