/*
 * receivers.h: the loop's side of the processes that receive descriptors (receiver.h). Loop thread only.
 *
 *     IDLE ──a datagram──→ AT_WORK ──its report, all closed──→ IDLE
 *                             └──its report, some to close──→ CLOSING ──closed──→ IDLE
 *
 * A user has one receiver at work at a time; its other sessions wait. A receiver whose close does not end is
 * abandoned: until it does end, descriptors of its user are dropped by another receiver, which closes nothing.
 * So a user can hang one process at most. When closing_max of them close or hang, descriptors are taken only
 * from users whose memory was accepted before, and when twice as many do, from nobody.
 */
#ifndef KOPS_RECEIVERS_H
#define KOPS_RECEIVERS_H

#include <uv.h>

#include "log.h"
#include "share/account.h"

struct receiver;

#define RECEIVED_BYTES_MAX 256u /* of a datagram with descriptors: an Import is shorter */

/* A datagram, and what came with it. */
struct received {
	size_t bytes;
	unsigned n_fds;
	int fd;          /* a memfd that came alone, the caller's to close; -1: none */
	int error;       /* errno of what came alone and is no memfd */
	bool lost;       /* there was no room for descriptors */
	const char *why; /* they were not taken, for this reason; NULL: they were */
};

/* A datagram with descriptors that is received for a session. Zero: none is. */
struct receiving {
	struct list_link link; /* among its user's, until it is ready */
	struct account *account;
	int sock;
	bool is_out;               /* from receivers_take() to receivers_forget() */
	bool is_ready;             /* it came, or cannot come */
	struct receiver *receiver; /* that is at work on it; NULL: it waits for one */
	/* When it is ready: */
	int status; /* 0, or as of message_recv() */
	struct received received;
	uint8_t data[RECEIVED_BYTES_MAX];
};

struct receivers {
	uv_loop_t *loop;
	struct accounts *accounts;
	void (*ready)(struct receiving *receiving);
	int spawner, spawner_pid; /* -1: none */
	struct list all;
	unsigned n_idle, n_at_work, n_closing; /* the last: hung ones too */
	unsigned closing_max;
	unsigned n_waiting; /* users, since too many are at work */
	uid_t served;       /* the user who waited no more, last */
	uv_timer_t timer;   /* while some might hang */
	struct log_limit lines;
};

/* Starts the spawner and a receiver. most: receivers that may hang. KOPS_E_SYSTEM with a sentence. */
int receivers_start(struct receivers *all, uv_loop_t *loop, uv_loop_t *timers, struct accounts *accounts,
                    unsigned most, void (*ready)(struct receiving *receiving), char why[WHY_BYTES]);
/* They end. No session may be there. */
void receivers_stop(struct receivers *all);

/* Has the datagram received that is the first of the connection. ready() is called when it is, or cannot be. */
void receivers_take(struct receivers *all, struct receiving *receiving, struct account *account, int sock);
/* It was read, or the session ends. Closes a descriptor that is there still. Nothing where nothing is out. */
void receivers_forget(struct receivers *all, struct receiving *receiving);

#endif
