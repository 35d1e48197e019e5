/*
 * cached.h: segments that users gave back. They are zeroed and wait until the same user wants one of their
 * size. The one given back longest ago leaves first. Loop thread only.
 */
#ifndef KOPS_CACHED_H
#define KOPS_CACHED_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/idmap.h"
#include "base/list.h"

struct segment;

struct cached {
	uint64_t limit_bytes, bytes;
	unsigned limit, n;    /* segments */
	struct list segments; /* most recently given back first */
	struct idmap by_key;  /* → struct alike */
};

/* Also beyond the limits. False: out of memory. */
bool cached_add(struct cached *cached, struct segment *segment);

/* Takes one of this user and size out. NULL: there is none. */
struct segment *cached_take(struct cached *cached, uid_t uid, uint64_t bytes);

/* Takes out the one given back longest ago. NULL: there is none. */
struct segment *cached_take_oldest(struct cached *cached);

static inline bool cached_is_over(const struct cached *cached)
{
	return cached->bytes > cached->limit_bytes || cached->n > cached->limit;
}

/* Frees what is left of it when it is empty. */
void cached_clear(struct cached *cached);

#endif
