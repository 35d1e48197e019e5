/* idmap.h: ids that clients choose → objects. Open addressing; nothing is allocated while it is empty. */
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
	size_t taken; /* slots before this one are empty, while values are only taken out */
};

struct idmap {
	struct idmap_table now;
	struct idmap_table old; /* what idmap_put() has yet to move to now */
	size_t count;           /* in both */
};

/* Of this process, since clients choose the ids: nobody can choose those that all have one home. */
extern uint64_t idmap_key;
void idmap_choose_key(void);

/* As SplitMix64 mixes (Steele, Lea and Flood 2014). */
static inline size_t idmap_home(uint64_t id, size_t capacity)
{
	uint64_t h = (id ^ idmap_key) * 0x9e3779b97f4a7c15u;

	h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
	h = (h ^ h >> 27) * 0x94d049bb133111ebu;
	return (size_t)(h >> 32) & (capacity - 1);
}

/* Where id is, or would be put. The table has a free slot. */
static inline struct idmap_slot *idmap_find(const struct idmap_table *table, uint64_t id)
{
	size_t i = idmap_home(id, table->capacity);

	while (table->slots[i].value && table->slots[i].id != id)
		i = (i + 1) & (table->capacity - 1);
	return &table->slots[i];
}

/* NULL: not there. */
static inline void *idmap_get(const struct idmap *map, uint64_t id)
{
	void *value = map->now.count ? idmap_find(&map->now, id)->value : NULL;

	return value || !map->old.count ? value : idmap_find(&map->old, id)->value;
}

/*
 * KOPS_E_EXISTS, KOPS_E_NOMEM. value is not NULL. A full table is replaced by a larger one, and each call then
 * moves IDMAP_MOVES slots at most: to move all at once would take a turn of the loop too long.
 */
#define IDMAP_MOVES 8u
int idmap_put(struct idmap *map, uint64_t id, void *value);
void *idmap_remove(struct idmap *map, uint64_t id); /* what was there, or NULL */
/* Calls visit for each value; visit must not change the map. */
void idmap_each(const struct idmap *map, void (*visit)(void *value, void *arg), void *arg);
/*
 * Takes out some value. Call it until map->count is 0, and put nothing in meanwhile: each call goes on where
 * the last one was, and looks at IDMAP_LOOKS slots at most. NULL: there was none in these.
 */
#define IDMAP_LOOKS 256u
void *idmap_take_next(struct idmap *map);
void idmap_clear(struct idmap *map); /* frees the table, not the values */

#endif
