/*
 * pool.h: shared memory that the daemon lends: sealed memfds, touched, zeroed and, with a GPU, pinned.
 *
 * A memfd that was given out cannot be taken away: its receiver may keep a descriptor or a mapping. So a
 * segment that a user has had is zeroed and goes back to that user only. Other users get new segments.
 *
 *     (made) → FRESH → LENT ⇄ CACHED (for the same user) → gone
 *                        └⇄ KEPT (its session ended; its client may have it and import it again) → gone
 *
 * A segment of which others have got a descriptor, because it was published, is not CACHED: they may have it
 * still.
 *
 * A KEPT segment is released with its pages when nobody else has the file open or mapped: kept.h.
 *
 * Worker threads make, zero and unmap segments (workers.h); everything else happens on the loop thread.
 */
#ifndef KOPS_POOL_H
#define KOPS_POOL_H

#include <sys/types.h>
#include <uv.h>

#include "device/driver.h"
#include "job/memory/segment.h"
#include "share/account.h"
#include "share/workers.h"

struct pool;

/*
 * pinning: the driver whose pin() is used, or NULL. Starts to make warm_bytes of fresh segments in the
 * background. The cache is limited to cache_bytes, and to cache_segments, because each has a descriptor. NULL:
 * out of memory.
 */
struct pool *pool_new(uv_loop_t *timers, struct accounts *accounts, struct workers *workers,
                      const struct driver *pinning, uint64_t warm_bytes, uint64_t cache_bytes,
                      unsigned cache_segments);
void pool_set_cache(struct pool *pool, uint64_t cache_bytes);

/* The size of a segment for at least `bytes`. No overflow below 2^63. */
uint64_t pool_segment_bytes(uint64_t bytes);

/*
 * Lends at least `bytes` to uid. A new segment is made at the expense of `flow`, and pinned if `pin`; an
 * existing one may be pinned anyway. *ret_ready: it is ready. Otherwise ready(segment, 0, arg) follows; or
 * ready(segment, KOPS_E_*, arg) with a sentence in segment->why, after which the segment is gone. NULL: out of
 * memory.
 */
struct segment *pool_lend(struct pool *pool, uid_t uid, struct task_flow *flow, uint64_t bytes, bool pin,
                          void (*ready)(struct segment *segment, int status, void *arg), void *arg,
                          bool *ret_ready);

/* Nobody waits for the segment: calls ready() with KOPS_E_CANCELLED, perhaps within this call. */
void pool_cancel(struct segment *segment);

/* A descriptor for the client, which the caller closes. KOPS_E_NOMEM: too many are open. */
int pool_open_for_client(const struct segment *segment);

/*
 * Takes a lent segment back, for the same user. No device may use it. released(arg) follows when its memory is
 * zeroed and belongs to the pool, or is freed; until then it is charged to the user.
 */
void pool_take_back(struct segment *segment, struct task_flow *flow, void (*released)(void *arg), void *arg);

/*
 * The same for a segment that its user did not drop and may import again, so its content stays. released(arg)
 * follows when nobody has it, or when it is adopted.
 */
void pool_let_go(struct segment *segment, struct account *account, void (*released)(void *arg), void *arg);

/*
 * Maps and lends again, with its content, the user's KEPT segment of this file; *ret_segment is NULL if there
 * is none. released() of pool_let_go() is called first, even if a thread is still unmapping it, so it never
 * counts twice. KOPS_E_NOMEM: it cannot be mapped, and stays kept.
 */
int pool_adopt(struct pool *pool, struct account *account, dev_t device, ino_t inode,
               struct segment **ret_segment);
/* Returns true if there is such a segment. */
bool pool_keeps(const struct pool *pool, const struct account *account, dev_t device, ino_t inode);

/* Checks one segment that the user keeps (account->kept.n is not 0). Returns true if nobody had it and it is
 * released. */
bool pool_look(struct pool *pool, struct account *account);

/* Checks all that the user keeps soon, because a client of the user has gone. */
void pool_look_soon(struct pool *pool, struct account *account);

/* Bytes of all segments, lent ones included. */
uint64_t pool_bytes(const struct pool *pool);

/* Frees everything that is not lent, and forgets what is KEPT. No task and no errand may be queued, nothing
 * lent. NULL allowed. The loop must run once more. */
void pool_free(struct pool *pool);

#endif
