/*
 * ring.h: the daemon's end of the rings of proto/ring_memory.h. Loop thread only.
 *
 * While the loop is awake it looks at the rings that are: those that were used since it last slept. Before it
 * sleeps it says so in each of them and looks once more. After a run, and after its end, it stays awake for
 * RINGS_LOOK_NS; where CPUs are few, only after the end of a short one whose client has no other out, while
 * nobody waits for a turn or for the CPU. Else clients wake it.
 *
 * A client can write anything at any time. A position that cannot be is a violation. A run is taken only when
 * there is a free place for its end, so what a client leaves unread bounds what it has out.
 */
#ifndef KOPS_DAEMON_RING_H
#define KOPS_DAEMON_RING_H

#include <uv.h>

#include "base/list.h"
#include "base/spin.h"
#include "kernel.h"
#include "ring_memory.h"

#define RINGS_LOOK_NS 50000u
/* So many are looked at, or put to sleep, at once: each may have to come from another CPU's cache. */
#define RINGS_AT_ONCE 16u

struct rings {
	uv_prepare_t prepare;
	uv_idle_t idle;    /* keeps the loop awake */
	uv_idle_t to_come; /* so does this, while more of them have to be put to sleep */
	struct list awake; /* in the order in which they awoke */
	unsigned n_awake;
	struct ring *next_look; /* where rings_look() goes on; NULL: at the first */
	unsigned to_sleep;      /* first ones that have to be put to sleep before the loop is; 0: all */
	uint64_t look_until_ns;
	bool were_used; /* since the last look */
	struct spin spin;
	bool cpus_are_few;
	uint64_t no_looks_until_ns;   /* where they are */
	void (*has_runs)(void *user); /* of a ring: it has some, to be taken now or as soon as can be */
	bool (*is_busy)(const struct rings *all); /* the loop has turns to give: it will not wait now */
};

struct ring {
	struct rings *all;
	void *user;
	struct ring_memory *memory;
	uint32_t entries;
	uint32_t taken, put;    /* run_head and end_tail, which clients cannot change */
	uint32_t reserved;      /* places for ends of runs that were taken */
	struct list_link awake; /* in rings.awake, while it is awake */
};

void rings_init(struct rings *all, uv_loop_t *loop, void (*has_runs)(void *user),
                bool (*is_busy)(const struct rings *all));

/* Whether the loop does not sleep, since some were used just now. */
static inline bool rings_are_awake(const struct rings *all)
{
	return uv_is_active((const uv_handle_t *)&all->idle);
}

/* Calls has_runs for those that have, of the RINGS_AT_ONCE that it looked at longest ago. */
void rings_look(struct rings *all);

/* entries: a power of 2, at most RING_ENTRIES_MAX. *ret_fd is the caller's to close. KOPS_E_NOMEM
 * with a sentence. */
int ring_new(struct rings *all, void *user, uint32_t entries, struct ring **ret_ring, int *ret_fd,
             char why[WHY_BYTES]);
void ring_free(struct ring *ring); /* NULL allowed */

/* The client put something in, or is about to. */
void ring_awaken(struct ring *ring);

/* 1: *ret_run is taken, and a place for its end is reserved. 0: none, or no place. KOPS_E_PROTOCOL. */
int ring_take(struct ring *ring, struct ring_run *ret_run);

/* How far the client has put runs in. */
uint32_t ring_mark(const struct ring *ring);

/* Whether all runs up to the mark are taken, or none can be before the client reads more ends. */
bool ring_is_past(const struct ring *ring, uint32_t mark);

/* Whether the client says that it looks for ends without sleeping. */
bool ring_is_watched(const struct ring *ring);

/* The run ended another way. */
void ring_release(struct ring *ring);

/* Puts an end into the reserved place. True: the client has to be woken. */
bool ring_put(struct ring *ring, const struct ring_end *end);

#endif
