/*
 * pool.h: shared memory that the daemon lends: sealed memfds, touched, zeroed and, with a GPU, pinned.
 *
 * A memfd once given out can never be taken away again: its receiver may keep a descriptor or a mapping. So a
 * segment that a user has had goes back to that user only, zeroed. Other users get new segments only.
 *
 *     (made) → FRESH → LENT ⇄ CACHED (for the same user) → gone
 *                        └⇄ KEPT (its session ended; its client may have it and come again with it) → gone
 *
 * A KEPT segment is released, its pages included, once nobody else has the file open or mapped: kept.h.
 *
 * Making, zeroing and unmapping are tasks of worker threads (workers.h); everything else happens on the loop
 * thread.
 */
#ifndef KOPS_POOL_H
#define KOPS_POOL_H

#include <sys/types.h>
#include <uv.h>

#include "job/segment.h"
#include "plan/backend.h"
#include "share/account.h"
#include "share/workers.h"

struct pool;

/*
 * pinning: whose pin() to use, NULL without one. Starts to make warm_bytes of fresh segments in the background;
 * what is kept for users is bounded by cache_bytes, and by cache_segments, since each has a descriptor. NULL:
 * out of memory.
 */
struct pool *pool_new(uv_loop_t *timers, struct accounts *accounts, struct workers *workers,
                      const struct backend *pinning, uint64_t warm_bytes, uint64_t cache_bytes,
                      unsigned cache_segments);
void pool_set_cache(struct pool *pool, uint64_t cache_bytes);

/* What a segment of at least `bytes` takes. No overflow below 2^63. */
uint64_t pool_segment_bytes(uint64_t bytes);

/*
 * Lends at least `bytes` to uid; what is made for this takes the time of `flow` and is pinned if `pin`, what is
 * there may be so anyway. *ret_ready: it is there. Otherwise ready(segment, 0, arg) follows, or ready(segment,
 * KOPS_E_*, arg) with a sentence in segment->why, after which the segment is gone. NULL: out of memory.
 */
struct segment *pool_lend(struct pool *pool, uid_t uid, struct task_flow *flow, uint64_t bytes, bool pin,
                          void (*ready)(struct segment *segment, int status, void *arg), void *arg,
                          bool *ret_ready);

/* Nobody waits for it any more: ready() is called with KOPS_E_CANCELLED, maybe within this call. */
void pool_cancel(struct segment *segment);

/* A descriptor for the client, the caller's to close. KOPS_E_NOMEM: too many are open. */
int pool_open_for_client(const struct segment *segment);

/*
 * Takes a lent segment back, for the same user. No device may use it any more. released(arg) follows when its
 * memory is zeroed and kept at the pool's expense, or freed: until then it counts as the user's.
 */
void pool_take_back(struct segment *segment, struct task_flow *flow, void (*released)(void *arg), void *arg);

/*
 * The same, but its user did not give it back and may come again with it: its content stays. released(arg)
 * follows when nobody has it any more, or when it is adopted.
 */
void pool_let_go(struct segment *segment, struct account *account, void (*released)(void *arg), void *arg);

/*
 * The segment that this user kept and whose file this is, mapped and lent again with its content; NULL: there
 * is none. The one who let it go is told that it is released, also where a thread unmaps it still, so that it
 * never counts twice. KOPS_E_NOMEM: it cannot be mapped, and stays kept.
 */
int pool_adopt(struct pool *pool, struct account *account, dev_t device, ino_t inode,
               struct segment **ret_segment);
/* Whether there is one. */
bool pool_keeps(const struct pool *pool, const struct account *account, dev_t device, ino_t inode);

/* Looks at one segment that the user keeps (account->kept.n is not 0). True: nobody has it, and it is released.
 */
bool pool_look(struct pool *pool, struct account *account);

/* A client of this user's has gone: looks soon at all that the user keeps. */
void pool_look_soon(struct pool *pool, struct account *account);

/* Bytes of all segments, lent ones included. */
uint64_t pool_bytes(const struct pool *pool);

/* Frees everything that is not lent, and forgets what is KEPT. No task and no errand may be out, nothing lent.
 * NULL allowed. The loop must run once more. */
void pool_free(struct pool *pool);

#endif
