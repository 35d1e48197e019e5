#include "job/memory/cached.h"

#include <stdlib.h>

#include "job/memory/segment.h"

/* Cached segments of one user and size; at least one. */
struct alike {
	struct list segments;
};

/* The key of one user and size. Keys are unique: sizes are multiples of the smallest, and the cache has less
 * than 2^32 of these. */
static uint64_t key_of(uid_t uid, uint64_t bytes)
{
	return (uint64_t)uid << 32 | bytes / SEGMENT_BYTES_MIN;
}

static struct alike *alike_new(struct cached *c, uint64_t key)
{
	struct alike *alike = calloc(1, sizeof *alike);

	if (alike && idmap_put(&c->by_key, key, alike) == 0)
		return alike;
	free(alike);
	return NULL;
}

/* Links the first segment of a key. Returns false if out of memory. */
static bool link_alike(struct cached *c, struct segment *s)
{
	uint64_t key = key_of(s->uid, s->bytes);
	struct alike *alike = idmap_get(&c->by_key, key);

	if (!alike)
		alike = alike_new(c, key);
	if (alike)
		list_push_first(&alike->segments, &s->alike);
	return alike;
}

static void unlink_alike(struct cached *c, struct segment *s)
{
	struct alike *alike = container_of(s->alike.list, struct alike, segments);

	list_remove(&s->alike);
	if (list_is_empty(&alike->segments))
		free(idmap_remove(&c->by_key, key_of(s->uid, s->bytes)));
}

bool cached_add(struct cached *c, struct segment *s)
{
	if (!link_alike(c, s))
		return false;
	list_push_first(&c->segments, &s->link);
	c->bytes += s->bytes;
	c->n++;
	return true;
}

static void uncache(struct cached *c, struct segment *s)
{
	unlink_alike(c, s);
	list_remove(&s->link);
	c->bytes -= s->bytes;
	c->n--;
}

struct segment *cached_take(struct cached *c, uid_t uid, uint64_t bytes)
{
	const struct alike *alike = idmap_get(&c->by_key, key_of(uid, bytes));
	struct segment *s = alike ? list_first(&alike->segments, struct segment, alike) : NULL;

	if (!s || s->bytes != bytes) /* a size that the cache cannot have */
		return NULL;
	uncache(c, s);
	return s;
}

struct segment *cached_take_oldest(struct cached *c)
{
	struct segment *s = list_last(&c->segments, struct segment, link);

	if (s)
		uncache(c, s);
	return s;
}

void cached_clear(struct cached *c)
{
	idmap_clear(&c->by_key);
}
