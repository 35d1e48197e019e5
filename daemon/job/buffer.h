/*
 * buffer.h: memory that sessions name and jobs use. Loop thread only.
 *
 *     PENDING ──→ READY ──┐
 *        └─────→ FAILED ──┴─→ (last reference gone) RELEASING → freed
 *
 * An imported buffer is READY at once. Lent and RESIDENT ones may be PENDING while a worker or device
 * thread makes them; jobs that name them wait. The session holds one reference, each unfinished job
 * one, and the making of it one. The making ends early when nobody else holds any.
 *
 * A buffer counts as its user's until its memory is given back, and Drop is answered then: so an Alloc after
 * the answer has the room. All buffers go one way, by Drop or with their session: prepared jobs let go of it,
 * a worker or device thread gives its memory back, and the rest is an errand of its user (errands.h).
 */
#ifndef KOPS_BUFFER_H
#define KOPS_BUFFER_H

#include "device/device.h"
#include "host_memory.h"
#include "job/pool.h"
#include "share/account.h"
#include "share/workers.h"

struct buffer_use;
struct engine;
struct session;

enum buffer_state { BUFFER_PENDING, BUFFER_READY, BUFFER_FAILED, BUFFER_RELEASING };

struct buffer {
	struct memory memory;
	struct engine *engine;
	struct account *account;
	enum buffer_state state;
	unsigned refs;
	uint64_t id;        /* in its session */
	uint64_t map_bytes; /* imported: length of the mapping */
	int fd;             /* imported: tells which pages are there; else -1 */
	uint64_t charged_bytes;
	struct segment *segment; /* lent */
	bool is_dropped;         /* by Drop, not by the end of its session: a lent one is given back */
	struct device *device;   /* RESIDENT */
	bool lost;               /* RESIDENT: stands for content destroyed by a restart */
	bool pin_charged;
	int failure;         /* FAILED: the code */
	char why[WHY_BYTES]; /* and a sentence, or "" */
	/* Called when PENDING ends, and when it is gone; NULL: nobody waits. Set by requests, with what
	 * follows; cleared when the session goes. */
	void (*settled)(struct buffer *buffer);
	void (*gone)(struct buffer *buffer);
	struct session *session, *drop_session;
	struct list prepared_uses;         /* struct buffer_use, by prepared jobs that are ready */
	struct list waiting;               /* jobs that are QUEUED and blocked, while it is PENDING */
	struct errand unblocking;          /* of these, once it no longer is */
	struct list_link pending, dropped; /* in the lists of its session */
	uint64_t request, drop_request;
	struct device_work device_work;
	struct task task;
	struct errand errand;
	uint64_t at, claimed_bytes; /* how far the task is */
	uint64_t file_bytes;        /* imported: what closing fd may free */
	struct host_memory_pages pages;
	uint64_t reached_by_jobs; /* bytes: the sum of what those that are out claim */
};

/*
 * Maps fd, which this function closes in any case. KOPS_E_FD, _QUOTA, _NOMEM with a sentence in why.
 */
int buffer_import(struct engine *engine, struct account *account, int fd, uint64_t bytes, bool read_only,
                  struct buffer **ret_buffer, char why[WHY_BYTES]);

/* Whether it is memory that the user was lent before and kept: to import that takes no room. */
bool buffer_is_kept(const struct engine *engine, const struct account *account, int fd);

/* From the pool; maybe PENDING. KOPS_E_QUOTA, _NOMEM. */
int buffer_lend(struct engine *engine, struct account *account, uint64_t bytes, struct buffer **ret_buffer,
                char why[WHY_BYTES]);

/* On a device; PENDING. KOPS_E_QUOTA, _NOMEM. */
int buffer_resident(struct engine *engine, struct account *account, struct device *device, uint64_t bytes,
                    struct buffer **ret_buffer, char why[WHY_BYTES]);

/* Of the file that its owner may change: SHARED ones have one. */
static inline uint64_t buffer_file_bytes(const struct buffer *buffer)
{
	return buffer->segment ? buffer->segment->bytes : buffer->file_bytes;
}

/* A job names it: with a reference, and a look whether the pages that nobody had written still are missing,
 * which its plan goes by. What was there once is taken to stay. */
void buffer_hold(struct buffer *buffer);
void buffer_unref(struct buffer *buffer);

/* Its session has gone: nobody waits for its Alloc any more. It may be gone afterwards. */
void buffer_forget_session(struct buffer *buffer);

/*
 * Whether memory is so plentiful, for all that is mapped, that no job needs to claim the pages that it reaches.
 * When it is no longer, engine->memory_is_short() is called first.
 */
bool buffer_memory_is_ample(struct engine *engine);

/*
 * A job that starts may touch so many bytes of a SHARED buffer, wherever they are. Its client can punch holes
 * at any time, and then pages become ours that were its own. All jobs that are out claim no more than the
 * buffer has. Returns what is promised anew, for host_memory_check().
 */
uint64_t buffer_claim_pages(struct buffer *buffer, uint64_t bytes);
void buffer_settle_pages(struct buffer *buffer, uint64_t bytes);

/* Whether it is worth registering for DMA before a GPU job, and the account allows it; then it is charged. */
bool buffer_wants_pin(struct buffer *buffer);
/* On a device thread: registers it, if nobody else is at it. */
void buffer_pin(struct buffer *buffer, const struct driver *driver);
/* After buffer_pin(), on the loop thread: gives the charge back if it did not work. */
void buffer_settle_pin(struct buffer *buffer);

#endif
