/*
 * published.h: buffers that users have published under names, for others to attach. Loop thread only.
 *
 * A name belongs to a user: the account has its names as a sorted array. Each published one holds a reference
 * to its buffer, which is frozen (buffer_is_frozen()). It ends with the session that made it, or when it is
 * withdrawn. With `keep` it outlives the session.
 */
#ifndef KOPS_PUBLISHED_H
#define KOPS_PUBLISHED_H

#include "base/peer.h"
#include "job/engine.h"
#include "job/memory/buffer.h"

struct published {
	struct list_link link;  /* in engine.published.list, the latest first */
	struct list_link owned; /* in its session's list, unless it is kept */
	struct buffer *buffer;  /* holds a reference; its account is the name's */
	uint64_t number;        /* in order of publishing, from 1 */
	uint64_t since_ns;
	kops_access access;
	gid_t group;
	pid_t pid;             /* of its session; 0: it is kept */
	struct op_shape shape; /* rank 0: not told */
	char name[];
};

/* How a buffer is to be published. */
struct publishing {
	const char *name;
	kops_access access;
	gid_t group;
	pid_t pid;
	struct op_shape shape;
};

/*
 * Publishes a buffer, which must not be an attachment. KOPS_E_INVALID, _RANGE, _DTYPE, _SHAPE, _BUSY, _LOST,
 * _FD, _EXISTS, _QUOTA, _UNSUPPORTED, _NOMEM with a sentence.
 */
int published_add(struct buffer *buffer, const struct publishing *how, struct published **ret_published,
                  char why[WHY_BYTES]);

/* NULL: the user has published none of this name. account may be NULL. */
struct published *published_find(const struct account *account, const char *name);

/* Returns true if this process may attach it. */
bool published_is_for(const struct published *published, const struct peer *peer);

/* Withdraws the name. Attachments stay. */
void published_remove(struct published *published);

/* Withdraws all names, when kopsd stops. */
void published_clear(struct engine *engine);

#endif
