/*
 * account.h: what one user (uid) holds, and its limits. Loop thread only.
 */
#ifndef KOPS_ACCOUNT_H
#define KOPS_ACCOUNT_H

#include <sys/types.h>

#include "config/config.h"
#include "kernel.h"
#include "share/errands.h"
#include "share/scheduler.h"
#include "share/turns.h"
#include "share/workers.h"
#include "usage/usage.h"

/* What the kernel reports for uids, and for gids, that our user namespace lacks; there may be several. */
#define KOPS_OVERFLOW_ID 65534u

enum account_kind {
	ACCOUNT_MAPPED,   /* SHARED buffers */
	ACCOUNT_PINNED,   /* of the mapped bytes, those registered for DMA */
	ACCOUNT_RESIDENT, /* RESIDENT buffers, all devices */
	ACCOUNT_KINDS,
};

struct kept_all;

/* Lent memory that a user's clients may keep after their sessions: job/memory/kept.h. */
struct user_kept {
	struct kept_all *all;
	struct list_link link;    /* in kept_all.users, while it keeps something */
	struct list segments;     /* the segment checked longest ago is first */
	unsigned n, left;         /* left: segments that the current round has yet to check */
	struct errand look;       /* the errand that checks segments */
	uint64_t due_ms, wait_ms; /* when the next round begins */
};

struct published;

/* The names under which a user has published buffers: job/memory/published.h. */
struct user_published {
	struct published **by_name; /* sorted */
	unsigned n, capacity;
};

struct receiver;

/* Descriptors that the user's clients send: share/receivers.h. */
struct account_receives {
	struct list waiting;     /* datagrams, struct receiving; the first may be being received */
	struct receiver *worker; /* works on one of the datagrams */
	struct receiver *closer; /* is closing descriptors that are no memfds */
	struct receiver *stuck;  /* a receiver that hangs in a close */
	bool waits;              /* too many receivers are at work */
	bool is_known;           /* kopsd has accepted memory of this user */
};

struct account {
	struct list_link link; /* in accounts.all */
	uid_t uid;
	unsigned refs;
	struct user_limits limits; /* the widest limits of its sessions */
	struct user_limits fresh;  /* being computed after a reload */
	uint64_t unread_bytes;     /* of replies in its sessions' outboxes */
	unsigned sessions, jobs, buffers;
	uint64_t bytes[ACCOUNT_KINDS];
	struct sched_flow flow;       /* its jobs, on the devices */
	struct task_flow memory_flow; /* its memory, in worker threads */
	struct turns_user turns;      /* its requests, on the loop */
	struct errands errands;       /* other work that is done in its turns */
	struct user_kept kept;
	struct user_published published;
	struct list ready;       /* its READY prepared jobs, the most recently used first */
	uint64_t prepared_bytes; /* of all its prepared jobs */
	struct list closings;    /* descriptors to close next */
	struct task_flow closing_flow;
	unsigned closings_out; /* closings that threads are working on */
	unsigned n_closing;    /* descriptors that are yet to be closed */
	struct account_receives receives;
	unsigned unread_fds;                        /* descriptors sent to the user and not read yet */
	uint64_t suspected_until_ns, slow_until_ns; /* share/slow.h */
	struct usage usage;                         /* of all its sessions, ended ones too */
	uint64_t idle_since; /* value of accounts.departures when the last reference went */
};

#define ACCOUNTS_IDLE_MAX 256u

/*
 * All accounts. For their figures, the ACCOUNTS_IDLE_MAX accounts that lost their last reference most recently
 * are kept. An account that is ahead of its share of anything is kept too: otherwise a user who reconnects for
 * each job would count as a new user each time.
 */
struct accounts {
	const struct config *config;
	const struct sched *sched, *memory_sched; /* memory_sched: NULL until it exists */
	struct turns *turns;
	struct turns_user *door; /* takes connections in its turns; NULL: there is none */
	struct turns_user kopsd; /* an extra user for kopsd's own work */
	struct errands errands;  /* errands that are done for no user */
	struct list all;         /* by uid, in descending order */
	struct list walks;       /* walks through `all` that are done in steps */
	uint64_t departures;     /* last references released since the start */
	struct workers *closers; /* threads that close descriptors and query devices; NULL until they exist */
	unsigned closers_each;   /* the most of these threads that one user may have */
	unsigned sessions;
	unsigned closing, closing_max; /* descriptors of all users that are yet to be closed */
	unsigned unread_fds, unread_fds_max;
	uint64_t unread_bytes, unread_max; /* of all users; the limit depends on the host's memory */
	uint64_t bytes[ACCOUNT_KINDS];
};

/* Initializes accounts. turns must be set; the other members may be set later. */
void accounts_init(struct accounts *all);
/* Returns the uid's account with a new reference. Creates one with the default limits if there is none. NULL:
 * out of memory. */
struct account *accounts_get(struct accounts *all, uid_t uid);
/* The uid's account; NULL: there is none. */
struct account *accounts_find(const struct accounts *all, uid_t uid);
/*
 * Returns the account's limits after a session of a process in these groups begins; the account is unchanged. A
 * user's section takes precedence over those of groups, and these over [kopsd]. Of several groups the largest
 * value counts. The limits of the first session replace the old ones; those of later sessions widen them.
 */
struct user_limits account_limits_beside(const struct accounts *all, const struct account *account,
                                         const gid_t *groups, size_t n_groups);
/* Computes limits after a reload: begin, note every session, then take them over. Sessions are noted in
 * steps. */
void accounts_begin_limits(struct accounts *all);
void account_note_session(const struct accounts *all, struct account *account, const gid_t *groups,
                          size_t n_groups);
void accounts_take_limits(struct accounts *all);
void account_ref(struct account *account);
void account_unref(struct accounts *all, struct account *account);
/* Does all errands of all users at once, when kopsd stops. */
void accounts_finish_errands(struct accounts *all);
/* Frees the accounts that were kept. There must be no references. */
void accounts_clear(struct accounts *all);

/* Returns true if another `bytes` bytes are within the limit. */
bool account_fits(uint64_t used, uint64_t bytes, uint64_t limit);

/* Returns true if another `bytes` bytes are within the limits of the user and of all users. */
bool account_has_room(const struct accounts *all, const struct account *account, enum account_kind kind,
                      uint64_t bytes);

/* Charges bytes. KOPS_E_QUOTA with a sentence in why (may be NULL); then nothing is charged. */
int account_charge(struct accounts *all, struct account *account, enum account_kind kind, uint64_t bytes,
                   char why[WHY_BYTES]);
void account_refund(struct accounts *all, struct account *account, enum account_kind kind, uint64_t bytes);

/*
 * Returns true, and counts the bytes, if the user may leave that many more bytes of replies unread. If all
 * users together leave too many unread, a user below an equal share still may.
 */
bool account_leave_unread(struct accounts *all, struct account *account, uint64_t bytes);
void account_was_read(struct accounts *all, struct account *account, uint64_t bytes);

#endif
