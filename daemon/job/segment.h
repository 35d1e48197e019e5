/* segment.h: a piece of shared memory that the daemon lends: see pool.h, whose it is. */
#ifndef KOPS_SEGMENT_H
#define KOPS_SEGMENT_H

#include <sys/types.h>

#include "host_memory.h"
#include "kernel.h"
#include "share/workers.h"

struct account;
struct pool;

struct segment {
	int fd;
	void *map;
	uint64_t bytes; /* of file and mapping */
	bool pin;       /* to be pinned when made */
	bool pinned;
	/* the pool's own */
	struct pool *pool;
	struct list_link link;   /* while it is fresh, cached or kept */
	struct list_link alike;  /* cached: among those of the same user and size */
	uid_t uid;               /* once lent */
	struct account *account; /* whose it is, once let go */
	dev_t device;            /* of its file, then */
	ino_t inode;
	bool is_kept; /* unmapped by now */
	struct task task;
	uint64_t at, claimed_bytes;     /* how far the task is */
	struct host_memory_pages pages; /* while they are zeroed */
	int status;
	char why[WHY_BYTES];
	void (*ready)(struct segment *segment, int status, void *arg);
	void (*released)(void *arg);
	void *arg;
};

#endif
