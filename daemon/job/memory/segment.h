/*
 * segment.h: a piece of shared memory that the daemon lends: a sealed memfd, touched, zeroed and, with a GPU,
 * pinned. pool.h says who has it when.
 */
#ifndef KOPS_SEGMENT_H
#define KOPS_SEGMENT_H

#include <sys/types.h>

#include "device/driver.h"
#include "host_memory.h"
#include "kernel.h"
#include "share/workers.h"

#define SEGMENT_BYTES_MIN (64ull << 10) /* sizes are multiples of that */

struct account;
struct pool;

struct segment {
	int fd;
	void *map;
	uint64_t bytes; /* of file and mapping */
	bool pin;       /* pin it when it is made */
	bool pinned;
	/* private to the pool */
	struct pool *pool;
	const struct driver *pinning; /* whose pin() and unpin() to use; NULL: none */
	struct list_link link;        /* while it is fresh, cached or kept */
	struct list_link alike;       /* cached segments of the same user and size */
	uid_t uid;                    /* once lent */
	struct account *account;      /* its user, while it is kept */
	dev_t device;                 /* of its file, while it is kept */
	ino_t inode;
	bool others_have; /* clients of other users may have a descriptor: it is never lent again */
	bool is_kept;     /* kept_add() was called: it is unmapped */
	struct task task;
	uint64_t at, claimed_bytes;     /* at: progress of the task */
	struct host_memory_pages pages; /* while they are zeroed */
	int status;                     /* of the making: 0 or KOPS_E_* */
	char why[WHY_BYTES];            /* and a sentence */
	void (*ready)(struct segment *segment, int status, void *arg);
	void (*released)(void *arg);
	void *arg;
};

/* Without file and mapping. NULL: out of memory. */
struct segment *segment_new(struct pool *pool, const struct driver *pinning, uint64_t bytes);

static inline struct segment *segment_of_task(struct task *task)
{
	return container_of(task, struct segment, task);
}

/*
 * Steps of its task, on worker threads. Before the first one `at` is 0. Making sets status; a segment that
 * could not be made has neither file nor mapping.
 */
bool segment_make_step(struct task *task);
bool segment_zero_step(struct task *task);
/* Frees its pages, file and mapping. */
bool segment_discard_step(struct task *task);
/* Leaves its file, with the content. */
bool segment_unmap_step(struct task *task);

/* Frees its file and mapping at once. The segment itself remains. */
void segment_unmake(struct segment *segment);

/* Maps its file at *ret, which may be in addition to its mapping. KOPS_E_NOMEM. */
int segment_map(const struct segment *segment, void **ret);

/* Opens the memory again as another open file, so that a lease can tell who has it open. -1 with errno. */
int segment_open_again(const struct segment *segment);

#endif
