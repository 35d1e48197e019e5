/*
 * session.h: one client. Datagrams in, replies out; its buffers, queues and jobs. Loop thread only.
 *
 *     ARRIVED ──first turn──→ GREETING ──Hello──→ OPEN ──→ CLOSING → freed
 *                                 └── timeout, refusal ──────↑
 *
 * A reply that the socket does not take waits in the outbox; until it is empty nothing more is read from
 * this client, so a slow reader bounds itself by what it has out; and its user by max-unread-per-uid.
 */
#ifndef KOPS_SESSION_H
#define KOPS_SESSION_H

#include <uv.h>

#include "job/account.h"
#include "job/idmap.h"

struct server;
struct buffer;

enum session_state { SESSION_ARRIVED, SESSION_GREETING, SESSION_OPEN, SESSION_CLOSING };

struct session_out {
	struct session_out *next;
	int fd; /* -1: none */
	size_t bytes;
	uint8_t data[];
};

/* One in-order queue; lives while it has jobs. */
struct session_queue {
	struct sched_queue sched;
	struct session *session; /* NULL: gone */
	uint32_t id;
	unsigned jobs;
};

struct session {
	struct session *next, *prev;
	struct server *server;
	struct account *account;
	enum session_state state;
	struct turns_place place;
	bool hung_up; /* what it sent before is still to be read */
	int fd;
	unsigned open_handles;
	uint64_t serial; /* for the log */
	pid_t pid;
	char client[65];
	uv_poll_t poll;
	uv_timer_t hello_timer;
	struct session_out *outbox, **outbox_end;
	struct idmap buffers;   /* id → struct buffer */
	struct idmap jobs;      /* request id → struct job, unanswered */
	struct idmap queues;    /* id → struct session_queue */
	struct buffer *pending; /* whose Alloc is unanswered; maybe dropped already */
	struct buffer *dropped; /* whose Drop is unanswered */
	unsigned n_dropped;     /* of these: they count against max-buffers until answered */
};

/* Takes over an accepted connection, to be opened when its user's turn comes; closes fd and logs where it is
 * refused. */
void session_arrive(struct server *server, int fd);

/* Sends one packed reply, with a descriptor of which a copy is made if it must wait (-1: none). Never closes
 * the session. 0, or KOPS_E_QUOTA when nothing was sent, since too many descriptors are under way. */
int session_send(struct session *session, const uint8_t *data, size_t bytes, int fd);

/* One datagram of it is read and handled. True: there may be more. See turns.h. */
bool session_take_turn(struct session *session);

/* Until session_take_turn() has nothing more to read. */
void session_unwatch(struct session *session);

/* Ends the session for a reason, logged once; NULL: the client hung up. Idempotent. */
void session_close(struct session *session, const char *why);

/* True when nothing is left to answer or to send. */
bool session_is_quiet(const struct session *session);

#endif
