/*
 * kept.h: memory that the daemon lent and that clients may have beyond their sessions. Loop thread only.
 *
 * A kept segment is given up once nobody else has its file open or mapped. The kernel tells: it grants a write
 * lease (fcntl F_SETLEASE) to the only opener of a file. So what clients get is an open file of their own, and
 * a look costs two system calls. It does not tell when that changes. So each user's segments are looked at
 * after a session of the user has ended, and then less and less often: one by one, as an errand of the user
 * (errands.h), who may keep thousands.
 */
#ifndef KOPS_KEPT_H
#define KOPS_KEPT_H

#include <sys/types.h>
#include <uv.h>

#include "base/idmap.h"
#include "share/account.h"

struct segment;

/* Of all users. What one keeps is in struct account. */
struct kept_all {
	struct accounts *accounts;
	/* Nobody has it any more, and it is no longer kept. */
	void (*unheld)(struct segment *segment);
	struct list users;     /* that keep something: user_kept.link */
	struct idmap by_inode; /* → segment */
	uv_timer_t timer;
	uint64_t due_ms; /* when that fires; UINT64_MAX: it is stopped */
};

void kept_init(struct kept_all *all, uv_loop_t *timers, struct accounts *accounts,
               void (*unheld)(struct segment *segment));
/* No errand may be out, and nothing is kept. */
void kept_clear(struct kept_all *all);

/* Its account is set: kept_find() finds it from now on. */
void kept_index(struct kept_all *all, struct segment *segment);
/* It is unmapped, and looked at from now on. */
void kept_add(struct kept_all *all, struct segment *segment);
/* Undoes both. */
void kept_remove(struct kept_all *all, struct segment *segment);

/* What this user let go of this file; NULL: nothing. */
struct segment *kept_find(const struct kept_all *all, const struct account *account, dev_t device, ino_t inode);

/* Looks at the one of this user's that was looked at longest ago. True: nobody had it. There must be one. */
bool kept_look(struct kept_all *all, struct account *account);

/* A client of this user's has gone: looks soon at all that the user keeps. */
void kept_look_soon(struct kept_all *all, struct account *account);

#endif
