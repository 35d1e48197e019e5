/*
 * receivers.h: the loop's side of the processes that receive descriptors (receiver.h). Loop thread only.
 *
 *     IDLE ──a datagram──→ AT_WORK ──its report, all closed──→ IDLE
 *                             └──its report, some to close──→ CLOSING ──closed──→ IDLE
 *
 * A user has one receiver at work at a time; its other sessions wait. A receiver whose close does not end is
 * abandoned. Until that close ends, another receiver drops descriptors of its user and closes nothing. So a
 * user can hang one process at most. If closing_max receivers close or hang, kopsd takes descriptors only from
 * users whose memory was accepted before. If twice as many do, it takes none.
 */
#ifndef KOPS_RECEIVERS_H
#define KOPS_RECEIVERS_H

#include <uv.h>

#include "log.h"
#include "share/account.h"

struct receiver;

#define RECEIVED_BYTES_MAX 256u /* of a datagram with descriptors; an Import is shorter */

/* A datagram, and what came with it. */
struct received {
	size_t bytes;
	unsigned n_fds;
	int fd;          /* a memfd that came alone, which the caller closes; -1: none */
	int error;       /* errno of reading the seals of a single descriptor that is no memfd */
	bool lost;       /* there was no room for descriptors */
	const char *why; /* why the descriptors were not taken; NULL: they were */
};

/* A datagram with descriptors, received for a session. All zero: there is none. */
struct receiving {
	struct list_link link; /* in its user's list, until it is ready */
	struct account *account;
	int sock;
	bool is_out;               /* between receivers_take() and receivers_forget() */
	bool is_ready;             /* it was received, or cannot be */
	struct receiver *receiver; /* works on it; NULL: it waits for one */
	/* Valid once is_ready is true: */
	int status; /* 0, or an error of message_recv() */
	struct received received;
	uint8_t data[RECEIVED_BYTES_MAX];
};

struct receivers {
	uv_loop_t *loop;
	struct accounts *accounts;
	void (*ready)(struct receiving *receiving);
	int spawner, spawner_pid; /* -1: none */
	struct list all;
	unsigned n_idle, n_at_work, n_closing; /* n_closing includes receivers that hang */
	unsigned closing_max;
	unsigned n_waiting; /* users that wait because too many receivers are at work */
	uid_t served;       /* the last user whose wait ended */
	uv_timer_t timer;   /* runs while a receiver may hang */
	struct log_limit lines;
};

/* Starts the spawner and a receiver. most: the number of receivers that may hang. KOPS_E_SYSTEM with a
 * sentence. */
int receivers_start(struct receivers *all, uv_loop_t *loop, uv_loop_t *timers, struct accounts *accounts,
                    unsigned most, void (*ready)(struct receiving *receiving), char why[WHY_BYTES]);
/* Ends the processes. There must be no sessions. */
void receivers_stop(struct receivers *all);

/* Receives the first datagram of the connection. Calls ready() when it is received, or cannot be. */
void receivers_take(struct receivers *all, struct receiving *receiving, struct account *account, int sock);
/* Call it once the datagram was read, or when the session ends. Closes a descriptor that is still there. Does
 * nothing unless is_out. */
void receivers_forget(struct receivers *all, struct receiving *receiving);

#endif
