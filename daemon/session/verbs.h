/*
 * verbs.h: what the handlers of single verbs share with the table in request.c.
 *
 * A handler sends the reply, now or later, and returns 0; or it returns the status to reply with, its sentence
 * in r->why (empty: the status's own text). What may take longer than a turn is done in steps: it sets r->next.
 */
#ifndef KOPS_VERBS_H
#define KOPS_VERBS_H

#include "job/plan.h"
#include "message.h"
#include "session/session.h"

#define STEP_BYTES 1024u /* of a message are unpacked in one step */

/* A job on its way from a message into its session: see runs.h. */
struct making {
	const Kops__V1__Submit *submit; /* in the arena */
	struct prepared *prepared;      /* whose job it becomes, where there is room; NULL: nobody's */
	bool is_new;                    /* that is forgotten where the job cannot be made */
	uint64_t deadline_us;
	struct job *job;
	unsigned n_bound; /* so many of its ops */
	struct planning planning;
	int (*finish)(struct request *r); /* it is planned */
};

struct request {
	struct session *session;
	uint64_t id, arrived_ns;
	const char *verb;             /* its name */
	bool by_ring;                 /* it came by the ring, where a place for its end is reserved */
	size_t bytes;                 /* of its datagram */
	const Kops__V1__Request *msg; /* in the arena: gone with the request, and once more is unpacked */
	struct received received;     /* its descriptor: -1 when it is taken over */
	int import_fd;                /* taken over, to be imported or closed; -1: none */
	unsigned looks;               /* at kept memory, which may make room: buffers.h */
	uint64_t retry_after_us;      /* with KOPS_E_BUSY */
	/* The next step, which the session may take in its next turn. Returns as a handler does. NULL: none. */
	int (*next)(struct request *r);
	struct desk *desk; /* while it waits for that */
	char why[WHY_BYTES];
	struct making making; /* see runs.h; set by who begins one */
};

#define X(name, NAME, function, state, fds_max) int function(struct request *r);
#include "session/verbs.def"
#undef X

/* verb/ping.c: Pings that wait for canaries, and one has come back: if it was the last they are answered. */
void pings_init(struct sessions *all);
void sessions_canaries_back(struct sessions *all);
/* verb/stats.c: Stats that wait for devices to tell. Also sets sensors.done. */
void stats_init(struct sessions *all);

#endif
