/*
 * session.h: one client. Datagrams in, replies out; its buffers, queues and jobs. Loop thread only.
 *
 *     ARRIVED ──first turn──→ GREETING ──Hello──→ OPEN ──→ CLOSING → freed
 *                                 └── timeout, refusal ──────↑
 *
 * A session that is CLOSING is in no list any more. Its client is told by the end of the connection. What it
 * has goes piece by piece, as an errand of its user (ending.c).
 *
 * A reply that the socket does not take waits in the outbox; until it is empty nothing more is read from
 * this client, so a slow reader bounds itself by what it has out; and its user by max-unread-per-uid.
 */
#ifndef KOPS_SESSION_H
#define KOPS_SESSION_H

#include "base/idmap.h"
#include "job/job.h"
#include "log.h"
#include "message.h"
#include "ring.h"
#include "session/outbox.h"
#include "session/peer.h"
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
	/* A datagram lies in desk->in: request_handle(). */
	int (*handle)(struct session *session, const struct received *received, char why[WHY_BYTES]);
	/* Of a session with a ring: request_take_runs(). */
	int (*take_runs)(struct session *session, char why[WHY_BYTES]);
	/* Of a session that is midway in a request: its next step, or that there will be none. */
	int (*resume)(struct session *session, char why[WHY_BYTES]);
	void (*abandon)(struct session *session);
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
	struct turns_place place;
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
	struct list pending; /* buffers whose Alloc is unanswered; maybe dropped already */
	struct list dropped; /* buffers whose Drop is unanswered */
	unsigned n_dropped;  /* of these: they count against max-buffers until answered */
	struct questions pings, stats;
	struct list_walk walk;      /* of its ListSessions or ListUsers, which is midway */
	struct receiving receiving; /* a datagram with descriptors: nothing else is read meanwhile */
	struct usage usage;
	struct errand ending;
};

/* engine, max, started_ns and what is called back are set. */
void sessions_init(struct sessions *all);

/* Starts those that receive descriptors; most: that may hang. KOPS_E_SYSTEM with a sentence. */
int sessions_start_receivers(struct sessions *all, unsigned most, char why[WHY_BYTES]);

/* True when nothing is left to answer or to send to anybody. */
bool sessions_are_quiet(const struct sessions *all);

/* Settings were reloaded: their users' limits follow them, when all sessions were looked at. Then calls
 * reloaded. */
void sessions_reload(struct sessions *all, void (*reloaded)(struct sessions *all));

/* Ends all of them, and does what that leaves to be done on the loop. */
void sessions_close(struct sessions *all);

/* Takes over an accepted connection, to be opened when its user's turn comes. Its user's account; NULL: it is
 * refused, which the log says, and closed. */
struct account *session_arrive(struct sessions *all, int fd);

/* Tells a connection for which there is no room why it is about to be closed. */
void sessions_turn_away(struct sessions *all, int fd, char *why);

/* Sends one packed reply, with a descriptor of which a copy is made if it must wait (-1: none). Never closes
 * the session. 0, or KOPS_E_QUOTA when nothing was sent, since too many descriptors are under way. */
int session_send(struct session *session, const uint8_t *data, size_t bytes, int fd);

/* Its memory is unmapped and refunded. Nothing where there is none. */
void session_close_ring(struct session *session);

/* ending.c: a session that is CLOSING gives up all that it has, and then calls session_ended(). */
void session_end(struct session *session);
/* Somebody else closes its connection when that is due. */
void session_leave_connection(struct session *session);
void session_ended(struct session *session);

/* Ends the session for a reason, logged once; NULL: the client hung up. Idempotent. */
void session_close(struct session *session, const char *why);

#endif
