/*
 * kept.h: lent memory that clients may have after their sessions. Loop thread only.
 *
 * A kept segment is released when nobody else has its file open or mapped. The kernel tells: it grants a write
 * lease (fcntl F_SETLEASE) only to the sole opener of a file. So clients get an open file of their own, and a
 * check costs two system calls. The kernel sends no event when that changes. So kopsd checks a user's segments
 * after a session of the user has ended, and then less and less often. A user may keep thousands, so they are
 * checked one by one, as an errand of the user (errands.h).
 */
#ifndef KOPS_KEPT_H
#define KOPS_KEPT_H

#include <sys/types.h>
#include <uv.h>

#include "base/idmap.h"
#include "share/account.h"

struct segment;

/* The kept segments of all users. What one user keeps is in struct account. */
struct kept_all {
	struct accounts *accounts;
	/* Called when nobody has the segment and it is no longer kept. */
	void (*unheld)(struct segment *segment);
	struct list users;     /* users that keep something: user_kept.link */
	struct idmap by_inode; /* → segment */
	uv_timer_t timer;
	uint64_t due_ms; /* when the timer fires; UINT64_MAX: it is stopped */
};

void kept_init(struct kept_all *all, uv_loop_t *timers, struct accounts *accounts,
               void (*unheld)(struct segment *segment));
/* No errand may be queued, and nothing kept. */
void kept_clear(struct kept_all *all);

/* Makes kept_find() find the segment, whose account is set. */
void kept_index(struct kept_all *all, struct segment *segment);
/* Begins to check the segment, which is unmapped. */
void kept_add(struct kept_all *all, struct segment *segment);
/* Undoes kept_index() and kept_add(). */
void kept_remove(struct kept_all *all, struct segment *segment);

/* The segment of this file that the user keeps; NULL: none. */
struct segment *kept_find(const struct kept_all *all, const struct account *account, dev_t device, ino_t inode);

/* Checks the user's segment that was checked longest ago. There must be one. Returns true if nobody had it. */
bool kept_look(struct kept_all *all, struct account *account);

/* Checks all that the user keeps soon, because a client of the user has gone. */
void kept_look_soon(struct kept_all *all, struct account *account);

#endif
