#include "job/memory/published.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "dtype.h"
#include "printable.h"

/* ---- A user's names ---- */

/* The place of the name, or where it would be. */
static unsigned place_of(const struct user_published *names, const char *name)
{
	unsigned lo = 0, hi = names->n;

	while (lo < hi) {
		unsigned mid = lo + (hi - lo) / 2;

		if (strcmp(names->by_name[mid]->name, name) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static bool is_named(const struct user_published *names, unsigned place, const char *name)
{
	return place < names->n && strcmp(names->by_name[place]->name, name) == 0;
}

/* Makes room for another. False: out of memory. */
static bool make_room_for_name(struct user_published *names)
{
	unsigned capacity = names->capacity ? 2 * names->capacity : 16;
	struct published **larger;

	if (names->n < names->capacity)
		return true;
	larger = realloc(names->by_name, capacity * sizeof(*larger));
	if (!larger)
		return false;
	names->by_name = larger;
	names->capacity = capacity;
	return true;
}

static void insert(struct user_published *names, unsigned place, struct published *p)
{
	memmove(names->by_name + place + 1, names->by_name + place,
	        (names->n - place) * sizeof(*names->by_name));
	names->by_name[place] = p;
	names->n++;
}

static void forget_name(struct user_published *names, unsigned place)
{
	names->n--;
	memmove(names->by_name + place, names->by_name + place + 1,
	        (names->n - place) * sizeof(*names->by_name));
	if (names->n > 0)
		return;
	free(names->by_name);
	*names = (struct user_published){0};
}

struct published *published_find(const struct account *account, const char *name)
{
	unsigned place = account ? place_of(&account->published, name) : 0;

	return account && is_named(&account->published, place, name) ? account->published.by_name[place] : NULL;
}

/* ---- What may be published ---- */

static int check_shape(const struct buffer *b, const struct op_shape *shape, char why[WHY_BYTES])
{
	uint64_t bytes = dtype_size(shape->dtype);
	bool fits = true;

	if (shape->rank == 0)
		return 0;
	if (bytes == 0) {
		snprintf(why, WHY_BYTES, "%d is not a valid element type", (int)shape->dtype);
		return KOPS_E_DTYPE;
	}
	for (uint32_t d = 0; d < shape->rank; d++)
		fits &= !__builtin_mul_overflow(bytes, shape->extents[d], &bytes);
	if (fits && bytes <= b->memory.bytes)
		return 0;
	snprintf(why, WHY_BYTES,
	         "buffer %" PRIu64 " has %" PRIu64 " bytes, too few for the type and shape given", b->id,
	         b->memory.bytes);
	return KOPS_E_RANGE;
}

static int check_state(const struct buffer *b, char why[WHY_BYTES])
{
	if (b->of != b) {
		snprintf(why, WHY_BYTES, "buffer %" PRIu64 " is attached; only its publisher can publish it",
		         b->id);
		return KOPS_E_INVALID;
	}
	if (b->lost) {
		snprintf(why, WHY_BYTES,
		         "the content of RESIDENT buffer %" PRIu64
		         " was lost when kopsd restarted; fill it before you publish it",
		         b->id);
		return KOPS_E_LOST;
	}
	if (b->state == BUFFER_READY && b->writers_out == 0)
		return 0;
	snprintf(why, WHY_BYTES, "buffer %" PRIu64 " %s; wait for the answer, then publish it", b->id,
	         b->state == BUFFER_READY ? "is being written by a job" : "is still being made");
	return KOPS_E_BUSY;
}

static int check_publishing(const struct buffer *b, const struct publishing *how, char why[WHY_BYTES])
{
	const struct account *a = b->account;
	int rc = 0;

	if (a->uid == KOPS_OVERFLOW_ID) {
		snprintf(why, WHY_BYTES,
		         "uid %u may stand for several users, so it can publish nothing; use a user that "
		         "kopsd's user namespace knows",
		         KOPS_OVERFLOW_ID);
		return KOPS_E_UNSUPPORTED;
	}
	if (!buffer_name_is_valid(how->name) || (unsigned)how->access > KOPS_EVERYBODY) {
		snprintf(why, WHY_BYTES, "%s",
		         (unsigned)how->access > KOPS_EVERYBODY
		             ? "the access to a published buffer is OWN_USER (0), GROUP (1) or EVERYBODY (2)"
		             : "invalid name of a buffer; a name has " BUFFER_NAME_RULES);
		return KOPS_E_INVALID;
	}
	rc = check_state(b, why);
	if (rc == 0)
		rc = check_shape(b, &how->shape, why);
	if (rc < 0)
		return rc;
	if (published_find(a, how->name)) {
		snprintf(
		    why, WHY_BYTES,
		    "you have published another buffer as \"%.100s\"; unpublish it, or choose another name",
		    how->name);
		return KOPS_E_EXISTS;
	}
	if (a->published.n < a->limits.max_published_per_uid)
		return 0;
	snprintf(why, WHY_BYTES,
	         "you have published %u buffers, the limit of a user; unpublish some, or have "
	         "max-published-per-uid raised",
	         a->published.n);
	return KOPS_E_QUOTA;
}

/* ---- In and out ---- */

static struct published *make_published(struct buffer *b, const struct publishing *how)
{
	size_t bytes = strlen(how->name) + 1;
	struct published *p = calloc(1, sizeof *p + bytes);

	if (!p)
		return NULL;
	memcpy(p->name, how->name, bytes);
	p->buffer = b;
	p->since_ns = clock_ns();
	p->access = how->access;
	p->group = how->group;
	p->pid = how->pid;
	p->shape = how->shape;
	return p;
}

int published_add(struct buffer *b, const struct publishing *how, struct published **ret, char why[WHY_BYTES])
{
	struct published_all *all = &b->engine->published;
	struct user_published *names = &b->account->published;
	struct published *p;
	int rc = check_publishing(b, how, why);

	if (rc == 0 && !b->device)
		rc = buffer_guard(b, why);
	if (rc < 0)
		return rc;
	p = make_room_for_name(names) ? make_published(b, how) : NULL;
	if (!p) {
		snprintf(why, WHY_BYTES, "kopsd is out of memory");
		return KOPS_E_NOMEM;
	}
	p->number = ++all->last;
	insert(names, place_of(names, p->name), p);
	list_push_first(&all->list, &p->link);
	b->refs++;
	b->n_names++;
	*ret = p;
	return 0;
}

void published_remove(struct published *p)
{
	struct buffer *b = p->buffer;
	struct user_published *names = &b->account->published;

	PRE(published_find(b->account, p->name) == p);
	forget_name(names, place_of(names, p->name));
	list_walks_pass(&b->engine->published.walks, &p->link);
	list_remove(&p->link);
	if (list_has(&p->owned))
		list_remove(&p->owned);
	free(p);
	b->n_names--;
	buffer_unref(b);
}

void published_clear(struct engine *e)
{
	struct published *p;

	while ((p = list_first(&e->published.list, struct published, link)))
		published_remove(p);
}

/* ---- Who may attach ---- */

bool published_is_for(const struct published *p, const struct peer *peer)
{
	if (peer->uid == 0 || peer->uid == p->buffer->account->uid || p->access == KOPS_EVERYBODY)
		return true;
	return p->access == KOPS_GROUP && p->group != KOPS_OVERFLOW_ID && peer->groups &&
	       peer_is_in(peer, p->group);
}
