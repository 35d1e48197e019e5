/* idmap.h: a map from ids that clients choose to objects. Open addressing; an empty map allocates nothing. */
#ifndef KOPS_IDMAP_H
#define KOPS_IDMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct idmap_slot {
	uint64_t id;
	void *value; /* NULL: empty */
};

struct idmap_table {
	struct idmap_slot *slots;
	size_t capacity; /* power of two, or 0 */
	size_t count;
	size_t taken; /* slots before this one are empty, while values are only removed */
};

struct idmap {
	struct idmap_table now;
	struct idmap_table old; /* entries that idmap_put() has yet to move to now */
	size_t count;           /* in both */
};

/* A random key of this process, so that clients cannot choose ids that all hash to one slot. */
extern uint64_t idmap_key;
void idmap_choose_key(void);

/* Mixes like SplitMix64 (Steele, Lea and Flood 2014). */
static inline size_t idmap_home(uint64_t id, size_t capacity)
{
	uint64_t h = (id ^ idmap_key) * 0x9e3779b97f4a7c15u;

	h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
	h = (h ^ h >> 27) * 0x94d049bb133111ebu;
	return (size_t)(h >> 32) & (capacity - 1);
}

/* The slot of id, or where it would be put. The table has a free slot. */
static inline struct idmap_slot *idmap_find(const struct idmap_table *table, uint64_t id)
{
	size_t i = idmap_home(id, table->capacity);

	while (table->slots[i].value && table->slots[i].id != id)
		i = (i + 1) & (table->capacity - 1);
	return &table->slots[i];
}

/* The value of id; NULL: none. */
static inline void *idmap_get(const struct idmap *map, uint64_t id)
{
	void *value = map->now.count ? idmap_find(&map->now, id)->value : NULL;

	return value || !map->old.count ? value : idmap_find(&map->old, id)->value;
}

/*
 * KOPS_E_EXISTS, KOPS_E_NOMEM. value is not NULL. A full table is replaced by a larger one. Each call then
 * moves at most IDMAP_MOVES slots, because moving all at once would take too long for a turn of the loop.
 */
#define IDMAP_MOVES 8u
int idmap_put(struct idmap *map, uint64_t id, void *value);
void *idmap_remove(struct idmap *map, uint64_t id); /* returns the removed value, or NULL */
/* Calls visit for each value; visit must not change the map. */
void idmap_each(const struct idmap *map, void (*visit)(void *value, void *arg), void *arg);
/*
 * Removes some value. Call it until map->count is 0, and put nothing meanwhile: each call continues where the
 * last one ended, and looks at no more than IDMAP_LOOKS slots. NULL: these were empty.
 */
#define IDMAP_LOOKS 256u
void *idmap_take_next(struct idmap *map);
void idmap_clear(struct idmap *map); /* frees the table, not the values */

#endif
