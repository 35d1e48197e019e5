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
 * A buffer counts as its user's until its memory is given back. Drop is answered then, so an Alloc after the
 * answer finds the room. A buffer ends in one way, whether by Drop or with its session. Prepared jobs let go of
 * it, a worker or device thread gives its memory back, and an errand of its user frees it (errands.h).
 *
 * A published buffer is frozen: no job may write it until its names and attachments are gone (published.h). An
 * attachment is a buffer of its session whose memory is another's: `of`. All that belongs to memory, such as
 * pinning and claims, is that buffer's.
 *
 * Each kind of buffer has a file: imported.c, lent.c, resident.c, attached.c. The end of this header has what
 * they share.
 */
#ifndef KOPS_BUFFER_H
#define KOPS_BUFFER_H

#include "device/device.h"
#include "host_memory.h"
#include "job/memory/pool.h"
#include "share/account.h"
#include "share/workers.h"

struct buffer_kind;
struct buffer_use;
struct engine;
struct session;

enum buffer_state { BUFFER_PENDING, BUFFER_READY, BUFFER_FAILED, BUFFER_RELEASING };

struct buffer {
	const struct buffer_kind *kind;
	struct memory memory; /* of an attachment only bytes and read_only are set */
	struct buffer *of;    /* the buffer whose memory it is: itself, unless it is an attachment */
	struct engine *engine;
	struct account *account;
	enum buffer_state state;
	unsigned refs;
	unsigned jobs_out,
	    jobs_beside, /* jobs that have started with it and not ended; of them, those beside */
	    writers_out; /* and those that write it */
	unsigned n_names, n_attached;
	uint64_t id; /* in its session */
	uint64_t charged_bytes;
	bool pin_charged;
	bool is_dropped;     /* by Drop, not by the end of its session: a lent buffer is given back */
	int failure;         /* FAILED: KOPS_E_* */
	char why[WHY_BYTES]; /* FAILED: a sentence, or "" */
	/* Called when PENDING ends, and when the buffer is gone; NULL: nobody waits. Requests set them and the
	 * next members; the end of the session clears them. */
	void (*settled)(struct buffer *buffer);
	void (*gone)(struct buffer *buffer);
	struct session *session, *drop_session;
	struct list prepared_uses;         /* struct buffer_use of prepared jobs that are READY */
	struct list waiting;               /* QUEUED jobs that are blocked while it is PENDING */
	struct errand unblocking;          /* unblocks these jobs once it is no longer PENDING */
	struct list_link pending, dropped; /* in its session's lists */
	uint64_t request, drop_request;
	struct task task;
	uint64_t at, claimed_bytes; /* at: progress of the task; claimed_bytes: host memory, not touched yet */
	struct errand errand;

	/* SHARED: */
	uint64_t file_bytes;            /* size of its file */
	struct host_memory_pages pages; /* of the file; its fd is -1 while there is no file */
	uint64_t reached_by_jobs;       /* bytes that running jobs claim, summed */
	/* imported: */
	uint64_t map_bytes; /* length of the mapping */
	int fd;             /* else -1 */
	/* lent: */
	struct segment *segment;
	/* RESIDENT: */
	struct device *device;
	bool lost; /* stands for content destroyed by a restart */
	struct device_work device_work;
};

/*
 * Maps fd, which this function closes in any case. KOPS_E_FD, _QUOTA, _NOMEM with a sentence in why.
 */
int buffer_import(struct engine *engine, struct account *account, int fd, uint64_t bytes, bool read_only,
                  struct buffer **ret_buffer, char why[WHY_BYTES]);

/* Returns true if the user was lent this memory before and kept it. An import of it takes no more room. */
bool buffer_is_kept(const struct engine *engine, const struct account *account, int fd);

/* Lends memory of the pool; maybe PENDING. KOPS_E_QUOTA, _NOMEM with a sentence in why. */
int buffer_lend(struct engine *engine, struct account *account, uint64_t bytes, struct buffer **ret_buffer,
                char why[WHY_BYTES]);

/* Allocates memory of a device; PENDING. KOPS_E_QUOTA, _NOMEM with a sentence in why. */
int buffer_resident(struct engine *engine, struct account *account, struct device *device, uint64_t bytes,
                    struct buffer **ret_buffer, char why[WHY_BYTES]);

/* Makes an attachment to a READY buffer that is published. NULL: out of memory. */
struct buffer *buffer_attach(struct buffer *published, struct account *account);

/* Returns true while no job may write the buffer, because it is published or attached. */
static inline bool buffer_is_frozen(const struct buffer *buffer)
{
	return buffer->n_names > 0 || buffer->n_attached > 0;
}

static inline bool buffer_may_be_written(const struct buffer *buffer)
{
	return !buffer->memory.read_only && !buffer_is_frozen(buffer);
}

/* Explains why jobs may not write the buffer, and returns KOPS_E_READONLY. */
int buffer_refuse_write(const struct buffer *buffer, char why[WHY_BYTES]);

/*
 * Has others unable to open a SHARED buffer's memory for writing, before they get a descriptor. Also its user
 * gets no such memory again. KOPS_E_FD with a sentence.
 */
int buffer_guard(struct buffer *buffer, char why[WHY_BYTES]);

/* A descriptor of a SHARED buffer for reading, which the caller closes. KOPS_E_NOMEM: too many are open. */
int buffer_open_for_reading(const struct buffer *buffer);

/* Adds a job's reference. Also updates how many pages are missing, for the job's plan; pages that were there
 * before are taken to stay. */
void buffer_hold(struct buffer *buffer);
void buffer_unref(struct buffer *buffer);

/* The session has ended: nobody waits for the Alloc any more. The buffer may be freed afterwards. */
void buffer_forget_session(struct buffer *buffer);

/*
 * Claims `bytes` of a SHARED buffer, anywhere in it, for a job that starts and may touch them. The client can
 * punch holes at any time, and pages that kopsd writes there count as kopsd's. All running jobs together claim
 * at most the whole buffer. Returns how many bytes more are promised now, for host_memory_check().
 */
uint64_t buffer_claim_pages(struct buffer *buffer, uint64_t bytes);
void buffer_settle_pages(struct buffer *buffer, uint64_t bytes);

/* Returns true if registering the buffer for DMA pays before a GPU job, and the account allows it. Then charges
 * it.
 */
bool buffer_wants_pin(struct buffer *buffer);
/* On a device thread: registers it, unless another thread is doing so. */
void buffer_pin(struct buffer *buffer, const struct driver *driver);
/* On the loop thread, after buffer_pin(): refunds the charge if the registration failed. */
void buffer_settle_pin(struct buffer *buffer);

/* ---- For buffer.c and the files of kinds: what these differ in, and what they share ---- */

/* Loop thread only, but for buffer_unmap_piece(). */
struct buffer_kind {
	enum account_kind account; /* what its bytes count as */
	/* Ends its making early: buffer_settle() follows, maybe within the call. NULL: it is never PENDING. */
	void (*cancel)(struct buffer *buffer);
	/* Gives its memory back: buffer_gone() follows, maybe within the call. */
	void (*release)(struct buffer *buffer);
};

/* Holds one reference. NULL: out of memory. */
struct buffer *buffer_new(const struct buffer_kind *kind, struct engine *engine, struct account *account,
                          uint64_t bytes);

/* Undoes buffer_new(), and gives back what the buffer charged. */
void buffer_delete(struct buffer *buffer);

/* Charges the account with its bytes. KOPS_E_QUOTA, KOPS_E_NOMEM with a sentence. */
int buffer_charge(struct buffer *buffer, uint64_t bytes, char why[WHY_BYTES]);

/* Charges the account with its bytes as pinned ones. False: the account does not allow it. */
bool buffer_charge_pin(struct buffer *buffer);

/* Its making is over; failure: 0 or KOPS_E_*. Gives up the reference that the making held. */
void buffer_settle(struct buffer *buffer, int failure);

/* Its memory is given back: the buffer counts no more, and an errand of its user frees it. */
void buffer_gone(struct buffer *buffer);

/* Has a worker thread do all steps of unmapping it, and then the loop thread done(). */
void buffer_unmap(struct buffer *buffer, bool (*step)(struct task *task), void (*done)(struct task *task));

/* On a worker thread, for such a step: unmaps the next piece of a mapping. True: nothing of it is left. */
bool buffer_unmap_piece(struct buffer *buffer, void *mapping, uint64_t bytes);

/* Lends a kept segment again, as the memory of a buffer that is being imported; the segment goes back to the
 * pool on failure. KOPS_E_QUOTA, KOPS_E_NOMEM with a sentence. */
int buffer_lend_kept(struct buffer *buffer, struct segment *segment, char why[WHY_BYTES]);

static inline struct buffer *buffer_of_task(struct task *task)
{
	return container_of(task, struct buffer, task);
}

#endif
