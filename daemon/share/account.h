/*
 * account.h: what one user (uid) holds, against the limits of the configuration. Loop thread only.
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

enum account_kind {
	ACCOUNT_MAPPED,   /* SHARED buffers */
	ACCOUNT_PINNED,   /* of those, registered for DMA */
	ACCOUNT_RESIDENT, /* RESIDENT buffers, all devices */
	ACCOUNT_KINDS,
};

struct kept_all;

/* Memory that its clients may have beyond their sessions: job/kept.h. */
struct user_kept {
	struct kept_all *all;
	struct list_link link;    /* in kept_all.users, while it keeps something */
	struct list segments;     /* the one that was looked at longest ago first */
	unsigned n, left;         /* left: yet to be looked at, where all are */
	struct errand look;       /* that does so */
	uint64_t due_ms, wait_ms; /* when that begins again */
};

struct receiver;

/* Descriptors that it sends: share/receivers.h. */
struct account_receives {
	struct list waiting;     /* datagrams, struct receiving; the first may be being received */
	struct receiver *worker; /* at one of them */
	struct receiver *closer; /* that closes what was no memfd */
	struct receiver *stuck;  /* a worker that hangs */
	bool waits;              /* since others are at work */
	bool is_known;           /* memory of it was accepted */
};

struct account {
	struct list_link link; /* in accounts.all */
	uid_t uid;
	unsigned refs;
	struct user_limits limits; /* the widest that its sessions have */
	struct user_limits fresh;  /* those after a reload, while it goes on */
	uint64_t unread_bytes;     /* of replies in its sessions' outboxes */
	unsigned sessions, jobs, buffers;
	uint64_t bytes[ACCOUNT_KINDS];
	struct sched_flow flow;       /* its jobs, on the devices */
	struct task_flow memory_flow; /* its memory, in worker threads */
	struct turns_user turns;      /* its requests, on the loop */
	struct errands errands;       /* what is done in its turns beside these */
	struct user_kept kept;
	struct list ready;       /* its prepared jobs that are READY, the one used last first */
	uint64_t prepared_bytes; /* of all its prepared jobs */
	struct list closings;    /* descriptors to be closed next */
	struct task_flow closing_flow;
	unsigned closings_out; /* that threads are at */
	unsigned n_closing;    /* descriptors that have yet to be closed */
	struct account_receives receives;
	unsigned unread_fds;                        /* that were sent to it */
	uint64_t suspected_until_ns, slow_until_ns; /* share/slow.h */
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
	struct turns_user kopsd; /* as if kopsd itself were one more user, and … */
	struct errands errands;  /* … its errands, which are for no user */
	struct list all;         /* by uid, the largest first */
	struct list walks;       /* through it, in pieces */
	uint64_t departures;     /* of last references, ever */
	struct workers *closers; /* close descriptors and ask devices; NULL: not yet */
	unsigned closers_each;   /* so many threads of them for one user */
	unsigned sessions;
	unsigned closing, closing_max; /* descriptors that have yet to be closed, of all users */
	unsigned unread_fds, unread_fds_max;
	uint64_t unread_bytes, unread_max; /* of all users; by the memory that there is */
	uint64_t bytes[ACCOUNT_KINDS];
};

/* Its turns are set; what it has of others comes later. */
void accounts_init(struct accounts *all);
/* The uid's account, made when there is none, with everybody's limits, and with a new reference. NULL: out of
 * memory. */
struct account *accounts_get(struct accounts *all, uid_t uid);
/*
 * Limits come from the settings: a user's section goes before those of groups, and these before [kopsd]; of
 * several groups the largest value counts. With a new session of a process in these groups: those of the first
 * replace what was there, those of others widen it. The account stays as it is.
 */
struct user_limits account_limits_beside(const struct accounts *all, const struct account *account,
                                         const gid_t *groups, size_t n_groups);
/* Limits after a reload, which take a while to find: all sessions are looked at before they count. */
void accounts_begin_limits(struct accounts *all);
void account_note_session(const struct accounts *all, struct account *account, const gid_t *groups,
                          size_t n_groups);
void accounts_take_limits(struct accounts *all);
void account_ref(struct account *account);
void account_unref(struct accounts *all, struct account *account);
/* Does all errands of all users at once: kopsd stops. */
void accounts_finish_errands(struct accounts *all);
/* Frees what stayed. No references may be left. */
void accounts_clear(struct accounts *all);

/* Whether so many bytes more are within the limit. */
bool account_fits(uint64_t used, uint64_t bytes, uint64_t limit);

/* Whether so many bytes more are within the limits of the user and of all users. */
bool account_has_room(const struct accounts *all, const struct account *account, enum account_kind kind,
                      uint64_t bytes);

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

#endif
