/*
 * ring.h: the daemon's end of the rings of proto/ring_memory.h. Loop thread only.
 *
 * While the loop is awake, it looks at the rings that are awake: those used since it last slept. Before it
 * sleeps, it marks itself asleep in each of them and looks once more. After a run arrives, and after it ends,
 * the loop stays awake for RINGS_LOOK_NS. With few CPUs it does so only after a short run whose client has no
 * other run out, and only while nobody waits for a turn or for the CPU. Otherwise clients wake the loop.
 *
 * A client can write anything at any time. An invalid position is a violation. A run is taken only if there is
 * a free entry for its receipt. So a client that reads no receipts bounds what it has out.
 */
#ifndef KOPS_DAEMON_RING_H
#define KOPS_DAEMON_RING_H

#include <uv.h>

#include "base/list.h"
#include "base/spin.h"
#include "kernel.h"
#include "ring_memory.h"

#define RINGS_LOOK_NS 50000u
/* Rings looked at, or put to sleep, at once: each may have to come from another CPU's cache. */
#define RINGS_AT_ONCE 16u

struct rings {
	uv_prepare_t prepare;
	uv_idle_t idle;    /* keeps the loop awake */
	uv_idle_t to_come; /* does so too, while more rings must be put to sleep */
	struct list awake; /* awake rings, in the order in which they awoke */
	unsigned n_awake;
	struct ring *next_look; /* where rings_look() continues; NULL: at the first */
	unsigned to_sleep;      /* the number of first rings to put to sleep before the loop sleeps; 0: all */
	uint64_t look_until_ns;
	bool were_used; /* rings were used since the last look */
	struct spin spin;
	bool cpus_are_few;
	uint64_t no_looks_until_ns;               /* if there are few CPUs */
	void (*has_runs)(void *user);             /* called for a ring with runs, which should be taken soon */
	bool (*is_busy)(const struct rings *all); /* the loop has turns to give, so it will not sleep */
};

struct ring {
	struct rings *all;
	void *user;
	struct ring_memory *memory;
	uint32_t entries;
	uint32_t taken, put;    /* run_head and end_tail; clients cannot change these copies */
	uint32_t reserved;      /* entries reserved for receipts of runs that were taken */
	struct list_link awake; /* in rings.awake, while it is awake */
};

void rings_init(struct rings *all, uv_loop_t *loop, void (*has_runs)(void *user),
                bool (*is_busy)(const struct rings *all));

/* Returns true while the loop does not sleep, because rings were used recently. */
static inline bool rings_are_awake(const struct rings *all)
{
	return uv_is_active((const uv_handle_t *)&all->idle);
}

/* Calls has_runs for rings with runs, among the RINGS_AT_ONCE that were looked at longest ago. */
void rings_look(struct rings *all);

/* Makes a ring. entries: a power of 2, at most RING_ENTRIES_MAX. The caller closes *ret_fd. KOPS_E_NOMEM with a
 * sentence. */
int ring_new(struct rings *all, void *user, uint32_t entries, struct ring **ret_ring, int *ret_fd,
             char why[WHY_BYTES]);
void ring_free(struct ring *ring); /* NULL allowed */

/* Call it when the client has put something in, or will. */
void ring_awaken(struct ring *ring);

/* Takes a run. Returns 1: *ret_run is taken, and an entry for its receipt is reserved. 0: there is no run, or
 * no free entry. KOPS_E_PROTOCOL with a sentence. */
int ring_take(struct ring *ring, struct ring_run *ret_run, char why[WHY_BYTES]);

/* The client's position: the number of runs put in so far. */
uint32_t ring_mark(const struct ring *ring);

/* Returns true if all runs up to the mark are taken, or none can be until the client reads receipts. */
bool ring_is_past(const struct ring *ring, uint32_t mark);

/* Returns true if the client says that it polls for receipts. */
bool ring_is_watched(const struct ring *ring);

/* Releases the entry reserved for a run that is answered by the socket. */
void ring_release(struct ring *ring);

/* Puts a receipt into the reserved entry. Returns true if the client has to be woken. */
bool ring_put(struct ring *ring, const struct ring_end *end);

#endif
