/*
 * pool.h: shared memory that the daemon lends: sealed memfds, touched, zeroed and, with a GPU, pinned.
 *
 * A memfd once given out can never be taken away again: its receiver may keep a mapping. So a segment
 * that a user has had goes back to that user only, zeroed. Other users get segments nobody ever had.
 *
 *     (made) → FRESH → LENT ⇄ CACHED (for the same uid) → gone
 *                        └→ gone (not given back: its session ended)
 *
 * Touching, zeroing, pinning and unmapping happen in libuv's worker threads; everything else on the loop
 * thread.
 */
#ifndef KOPS_POOL_H
#define KOPS_POOL_H

#include <uv.h>

#include "backend.h"

struct pool;

struct segment {
	int fd;
	void *map;
	uint64_t bytes; /* of file and mapping */
	bool pin;       /* to be pinned when made */
	bool pinned;
	/* the pool's own */
	struct pool *pool;
	struct segment *next;
	uid_t uid; /* once lent */
	uv_work_t work;
	int status;
	void (*ready)(struct segment *segment, int status, void *arg);
	void *arg;
};

/*
 * gpu: whose pin() to use, NULL without one. Starts to make warm_bytes of fresh segments in the background;
 * cache_bytes bounds what is kept for users. NULL: out of memory.
 */
struct pool *pool_new(uv_loop_t *loop, const struct backend *gpu, uint64_t warm_bytes, uint64_t cache_bytes);
void pool_set_cache(struct pool *pool, uint64_t cache_bytes);

/* What a segment of at least `bytes` takes. No overflow below 2^63. */
uint64_t pool_segment_bytes(uint64_t bytes);

/*
 * Lends at least `bytes` to uid; what is made for this is pinned if `pin`, what is there may be so anyway.
 * Returns a segment at once when one is ready. Otherwise NULL and *ret_status 0: ready(segment, 0, arg) or
 * ready(NULL, KOPS_E_*, arg) follows; or *ret_status is KOPS_E_NOMEM.
 */
struct segment *pool_lend(struct pool *pool, uid_t uid, uint64_t bytes, bool pin,
                          void (*ready)(struct segment *segment, int status, void *arg), void *arg,
                          int *ret_status);

/* Takes a lent segment back, for the same user. No device may use it any more. */
void pool_take_back(struct segment *segment);

/*
 * The same, but its user did not give it back and may come again with it: its content stays, and the pool
 * forgets it.
 */
void pool_let_go(struct segment *segment);

/* Bytes of all segments, lent ones included. */
uint64_t pool_bytes(const struct pool *pool);

/* True while worker threads are at segments. */
bool pool_is_busy(const struct pool *pool);

/* Frees everything that is not lent. pool_is_busy() must be false, and nothing lent. NULL allowed. */
void pool_free(struct pool *pool);

#endif
