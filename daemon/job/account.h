/*
 * account.h: what one user (uid) holds, against the limits of the configuration. Loop thread only.
 */
#ifndef KOPS_ACCOUNT_H
#define KOPS_ACCOUNT_H

#include <sys/types.h>

#include "config/config.h"
#include "job/scheduler.h"
#include "job/workers.h"
#include "kernel.h"
#include "turns.h"
#include "usage/usage.h"

enum account_kind {
	ACCOUNT_MAPPED,   /* SHARED buffers */
	ACCOUNT_PINNED,   /* of those, registered for DMA */
	ACCOUNT_RESIDENT, /* RESIDENT buffers, all devices */
	ACCOUNT_KINDS,
};

struct closing;

struct account {
	struct account *next;
	uid_t uid;
	unsigned refs;
	struct user_limits limits; /* the widest that its sessions have */
	uint64_t unread_bytes;     /* of replies in its sessions' outboxes */
	unsigned sessions, jobs, buffers;
	uint64_t bytes[ACCOUNT_KINDS];
	struct sched_flow flow;           /* its jobs, on the devices */
	struct task_flow memory_flow;     /* its memory, in worker threads */
	struct turns_user turns;          /* its requests, on the loop */
	struct prepared *newest, *oldest; /* prepared jobs that are ready, by last use */
	uint64_t prepared_bytes;          /* of all its prepared jobs */
	struct closing *closing;          /* descriptors to be closed next; NULL: none */
	struct task_flow closing_flow;
	unsigned closings_out;                      /* that threads are at */
	unsigned n_closing;                         /* descriptors that have yet to be closed */
	unsigned unread_fds;                        /* that were sent to it */
	uint64_t suspected_until_ns, slow_until_ns; /* session/slow.c */
	struct usage usage;                         /* of all its sessions, past ones too */
	uint64_t idle_since;                        /* without references: accounts.departures then */
};

#define ACCOUNTS_IDLE_MAX 256u

/*
 * Of accounts that nobody refers to, the ACCOUNTS_IDLE_MAX that were left last stay, for their figures. So does
 * any that is ahead of its share of anything, else a user who connects anew for each job would be a new user
 * each time.
 */
struct accounts {
	const struct config *config;
	const struct sched *sched, *memory_sched; /* the latter NULL: not yet */
	struct turns *turns;
	struct turns_user *door; /* whose turns take connections; NULL: nobody's do */
	struct account *first;   /* by uid, the largest first */
	uint64_t departures;     /* of last references, ever */
	struct workers *closers; /* that close descriptors; NULL: not yet */
	unsigned closers_each;   /* so many threads of them for one user */
	unsigned sessions;
	unsigned closing, closing_max; /* descriptors that have yet to be closed, of all users */
	unsigned unread_fds, unread_fds_max;
	uint64_t unread_bytes, unread_max; /* of all users; by the memory that there is */
	uint64_t bytes[ACCOUNT_KINDS];
};

/* The uid's account, made when there is none, with everybody's limits, and with a new reference. NULL: out of
 * memory. */
struct account *accounts_get(struct accounts *all, uid_t uid);
/*
 * Limits come from the settings: a user's section goes before those of groups, and these before [kopsd]; of
 * several groups the largest value counts. For a new session of a process in these groups: those of the first
 * replace what was there, those of others widen it.
 */
void account_widen(const struct accounts *all, struct account *account, const gid_t *groups, size_t n_groups);
/* What they are with such a session; the account stays as it is. */
struct user_limits account_limits_beside(const struct accounts *all, const struct account *account,
                                         const gid_t *groups, size_t n_groups);
/* After a reload, before all sessions widen them anew. */
void accounts_reset_limits(struct accounts *all);
void account_ref(struct account *account);
void account_unref(struct accounts *all, struct account *account);
/* Frees what stayed. No references may be left. */
void accounts_clear(struct accounts *all);

/* Whether so many bytes more are within the limit. */
bool account_fits(uint64_t used, uint64_t bytes, uint64_t limit);

/* Takes bytes. KOPS_E_QUOTA with a sentence (why may be NULL), nothing taken. */
int account_charge(struct accounts *all, struct account *account, enum account_kind kind, uint64_t bytes,
                   char why[WHY_BYTES]);
void account_refund(struct accounts *all, struct account *account, enum account_kind kind, uint64_t bytes);

/*
 * Whether this user may leave so many bytes of replies unread, which then count. Where all users leave too
 * much, whoever has less than an equal share of it still may.
 */
bool account_leave_unread(struct accounts *all, struct account *account, uint64_t bytes);
void account_was_read(struct accounts *all, struct account *account, uint64_t bytes);

/*
 * Closes a descriptor that came from this user in a thread, of which a user has a few at most: how long that
 * takes is up to the user. A connection's end frees what lies unread in it (0.2 ms where it is full), that of a
 * memfd its pages, if nobody else has it. A file system of the user's own may never answer. A socket may linger
 * for as long as it was told to (SO_LINGER), and so may those that lie unread in a connection, however deep; a
 * signal ends that after a millisecond. account: NULL: not known; then it is closed by the caller's thread.
 *
 * Of a user with more to be closed than others may still have, nothing is read: so a user alone takes half of
 * closing_max, n users take n / (n + 1) of it, and some is always left. Only refused connections can take the
 * rest, since whose they are shows too late; then none is taken for a while.
 */
void account_close(struct accounts *all, struct account *account, int fd);

/* ---- Descriptors that wait unread at clients (unread.c) ----
 *
 * The kernel lets one user's processes have only so many descriptors under way: as many as the sender may have
 * open (RLIMIT_NOFILE). Beyond that no client gets lent memory or a ring, whoever leaves them unread; and a
 * socket keeps what was sent until its owner closes it, also when the session has long ended. So they are
 * counted by user, and the connection of a session that ended with some unread stays open, and counts as a
 * session, until they are read or the client's end of it is closed.
 *
 * Like account_close(), it leaves some to everybody: a user alone may leave half of unread_fds_max, n users
 * n / (n + 1) of it. That a client has read is known only when we look: at its next one, when the limit is met,
 * and after a while.
 */

/* Of one connection; private but for `kept`. */
struct unread {
	struct unread *next, **link;
	struct unread **holder; /* the session's pointer here; NULL: it ended */
	struct account *account;
	int fd;
	unsigned n;
	unsigned kept; /* of these: that the socket has not taken yet */
};

struct unreads {
	struct accounts *accounts;
	struct unread *first, **end; /* looked at last: at the end */
	uv_timer_t timer;
	uint64_t look_ms;
};

void unreads_init(struct unreads *all, uv_loop_t *loop, struct accounts *accounts);
/* Closes all connections that stayed open. No session may be there. */
void unreads_clear(struct unreads *all);

/*
 * Another descriptor goes to this user by the connection fd, and counts. *holder is NULL where it has read all,
 * as far as we know. False: too many wait unread, or there is no memory.
 */
bool unread_add(struct unreads *all, struct unread **holder, struct account *account, int fd);
/* For the client. */
extern const char unread_why[];
/* It could not be sent. */
void unread_take_back(struct unreads *all, struct unread *unread);
/* The session ends: its connection is closed, now or later, and counts until then. NULL allowed. */
void unread_leave(struct unreads *all, struct unread *unread, struct account *account, int fd);

#endif
