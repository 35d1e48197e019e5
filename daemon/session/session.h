/*
 * session.h: what a session is: one client's connection, buffers, queues and jobs; and how replies leave it.
 * Loop thread only.
 *
 *     ARRIVED ──first turn──→ GREETING ──Hello──→ OPEN ──→ CLOSING → freed
 *                                 └── timeout, refusal ──────↑
 *
 * The files above it: request.h handles what a client sent, ending.h closes a session, turn.h reads in the
 * session's turn, sessions.h accepts clients.
 *
 * A reply that the socket does not take waits in the outbox; until it is empty nothing more is read from
 * this client, so a slow reader bounds itself by what it has out; and its user by max-unread-per-uid.
 */
#ifndef KOPS_SESSION_H
#define KOPS_SESSION_H

#include "base/idmap.h"
#include "base/peer.h"
#include "job/job.h"
#include "log.h"
#include "message.h"
#include "ring.h"
#include "session/outbox.h"
#include "session/questions.h"
#include "session/sensing.h"
#include "share/errands.h"
#include "share/receivers.h"
#include "share/slow.h"
#include "share/turns.h"
#include "share/unread.h"
#include "usage/trace.h"

struct buffer;
struct request;
struct session;

#define SESSIONS_MIDWAY_MAX 7 /* further requests are done in one turn */

/* Where a request is worked on. */
struct desk {
	uint8_t in[MESSAGE_BYTES_MAX];      /* its datagram */
	struct message_unpacking unpacking; /* of that */
	struct message_arena arena; /* what it gave, and the request itself while its session is midway */
};

/* All sessions, and what they share. Part of struct server. */
struct sessions {
	struct engine *engine;
	struct turns turns;
	struct rings rings;
	struct receivers receivers;
	struct unreads unreads;
	struct slow slow;
	struct list list;  /* of struct session */
	struct list walks; /* through it, in pieces */
	unsigned max;      /* by descriptors */
	bool stopping;     /* no new connections, no new jobs */
	/* While settings are reloaded. */
	struct errand reload;
	struct list_walk to_reload;
	void (*reloaded)(struct sessions *all);
	uint64_t started_ns;
	struct trace trace;
	struct sensors sensors;
	struct askers pings, stats; /* verb/ping.c, verb/stats.c */
	struct log_limit refusals;  /* lines about clients that were turned away */
	struct log_limit ends;      /* and about those whose sessions kopsd ended */
	/* One request is at work at a time, at this desk; those of others that are midway have theirs. */
	struct desk *desk, *free_desks[SESSIONS_MIDWAY_MAX];
	unsigned n_free_desks;
	struct desk desks[SESSIONS_MIDWAY_MAX + 1];
	uint8_t out[MESSAGE_BYTES_MAX];
};

enum session_state { SESSION_ARRIVED, SESSION_GREETING, SESSION_OPEN, SESSION_CLOSING };

struct session {
	struct list_link link; /* in sessions.list */
	struct sessions *all;
	struct engine *engine;
	struct account *account;

	/* What each run of a ring needs lies together. */
	enum session_state state;
	bool hung_up;           /* what it sent before is still to be read */
	bool readable;          /* perhaps: the socket has something */
	bool is_marked;         /* with a ring: a datagram waits, and … */
	uint32_t runs_before;   /* … runs up to this mark come before it */
	struct ring *ring;      /* NULL: not opened */
	struct request *midway; /* to be gone on with before anything else is read; NULL: none */
	struct turns_waiter waiter;
	struct outbox outbox;
	struct idmap jobs;     /* request id → struct job, unanswered */
	struct idmap prepared; /* number → struct prepared */
	uint64_t serial;       /* for the log, and for who lists sessions */
	pid_t pid;

	int fd;                       /* -1: somebody else closes it */
	unsigned open_handles;        /* of libuv's; and the errand of its end counts as one */
	bool is_colleague;            /* its process has the daemon's group: see-others */
	char client[PEER_NAME_BYTES]; /* as in Hello, or its process's name */
	uint64_t arrived_ns;
	uv_poll_t poll;
	uv_timer_t hello_timer;
	struct idmap buffers;          /* id → struct buffer */
	uint64_t bytes[ACCOUNT_KINDS]; /* of these, as they are charged; pinned ones are not told apart */
	struct job_queues queues;
	struct list pending;   /* buffers whose Alloc is unanswered; maybe dropped already */
	struct list published; /* its names that end with it: struct published */
	struct list dropped;   /* buffers whose Drop is unanswered */
	unsigned n_dropped;    /* of these: they count against max-buffers until answered */
	struct questions pings, stats;
	struct list_walk walk;      /* of its ListSessions, ListUsers or ListBuffers, which is midway */
	struct receiving receiving; /* a datagram with descriptors: nothing else is read meanwhile */
	struct usage usage;
	struct errand ending;
};

/* A thread of receivers.h is reading the next datagram. It stays in the socket, which is not watched meanwhile:
 * the kernel would name it at every look. */
static inline bool session_is_received_elsewhere(const struct session *session)
{
	return session->receiving.is_out && !session->receiving.is_ready;
}

/*
 * Has the loop look at the socket until session_unwatch(): for room while replies wait in the outbox, else for
 * something to read. A session whose socket cannot be watched ends in its next turn.
 */
void session_watch(struct session *session);
void session_unwatch(struct session *session);

/* For turns_init(), which notes itself that the waiter is unwatched. */
void session_stop_polling(struct session *session);

/* Ends the connection for its client; the descriptor stays open. */
void session_shut_down(struct session *session);

/* Reads who is at the other end, to be freed with peer_free(). KOPS_E_NOMEM with a sentence. */
int session_read_peer(const struct session *session, struct peer *ret, char why[WHY_BYTES]);

/*
 * The socket of a session with a ring has a datagram. The client put what is in the ring by now there before it
 * sent that datagram, so these runs are taken first.
 */
void session_mark_runs(struct session *session);

/* Sends one packed reply, with a descriptor of which a copy is made if it must wait (-1: none). Never closes
 * the session. 0, or KOPS_E_QUOTA when nothing was sent, since too many descriptors are under way. */
int session_send(struct session *session, const uint8_t *data, size_t bytes, int fd);

/* Unmaps the ring and refunds its memory. Does nothing where there is no ring. */
void session_close_ring(struct session *session);

#endif
