/*
 * verbs.h: what the handlers of verbs share with the table in request.c.
 *
 * A handler sends the reply, now or later, and returns 0. Or it returns the status to reply with, and its
 * sentence in r->why (empty: the status's own text). Work that may take longer than a turn is done in steps:
 * the handler sets r->next.
 */
#ifndef KOPS_VERBS_H
#define KOPS_VERBS_H

#include "job/plan.h"
#include "message.h"
#include "session/session.h"

#define STEP_BYTES 1024u /* bytes of a message unpacked in one step */

/* A job that is being made from a message: see runs.h. */
struct making {
	const Kops__V1__Submit *submit; /* in the arena */
	struct prepared *prepared; /* the prepared job that it becomes part of, if there is room; NULL: none */
	bool is_new;               /* forget `prepared` if the job cannot be made */
	uint64_t deadline_us;
	struct job *job;
	unsigned n_bound; /* ops bound so far */
	struct planning planning;
	int (*finish)(struct request *r); /* called when the job is planned */
};

struct request {
	struct session *session;
	uint64_t id, arrived_ns;
	const char *verb;             /* its name */
	bool by_ring;                 /* it came by the ring, where its receipt has a reserved entry */
	size_t bytes;                 /* of its datagram */
	const Kops__V1__Request *msg; /* in the arena; freed with the request, or by another unpacking */
	struct received received;     /* its descriptor is -1 once taken over */
	int import_fd;                /* taken over from `received`, to be imported or closed; -1: none */
	struct peer peer;             /* who asks, within a step of ListBuffers */
	unsigned looks;               /* kept segments to check for room: buffers.h */
	uint64_t retry_after_us;      /* with KOPS_E_BUSY */
	/* The next step, for the session's next turn. Returns as a handler does. NULL: none. */
	int (*next)(struct request *r);
	struct desk *desk; /* held while the request waits for `next` */
	char why[WHY_BYTES];
	struct making making; /* see runs.h; set by the handler that begins one */
};

#define X(name, NAME, function, state, fds_max) int function(struct request *r);
#include "session/verbs.def"
#undef X

/* verb/ping.c: Pings wait for canaries. sessions_canaries_back() answers them when the last one is back. */
void pings_init(struct sessions *all);
void sessions_canaries_back(struct sessions *all);
/* verb/stats.c: Stats wait for devices' sensors. Also sets sensors.done. */
void stats_init(struct sessions *all);

#endif
