/* segment.h: a piece of shared memory that the daemon lends. It belongs to the pool: pool.h. */
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
	bool pin;       /* pin it when it is made */
	bool pinned;
	/* private to the pool */
	struct pool *pool;
	struct list_link link;   /* while it is fresh, cached or kept */
	struct list_link alike;  /* cached segments of the same user and size */
	uid_t uid;               /* once lent */
	struct account *account; /* its user, while it is kept */
	dev_t device;            /* of its file, while it is kept */
	ino_t inode;
	bool is_kept; /* kept_add() was called: it is unmapped */
	struct task task;
	uint64_t at, claimed_bytes;     /* at: progress of the task */
	struct host_memory_pages pages; /* while they are zeroed */
	int status;
	char why[WHY_BYTES];
	void (*ready)(struct segment *segment, int status, void *arg);
	void (*released)(void *arg);
	void *arg;
};

#endif
