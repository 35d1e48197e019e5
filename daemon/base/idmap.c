#include "base/idmap.h"

#include <stdlib.h>
#include <sys/random.h>

#include "base/clock.h"
#include "kops_types.h"

uint64_t idmap_key;

/* Just after boot there may be no random numbers. */
void idmap_choose_key(void)
{
	if (getrandom(&idmap_key, sizeof idmap_key, GRND_NONBLOCK) != (ssize_t)sizeof idmap_key)
		idmap_key = clock_ns();
}

static void table_free(struct idmap_table *table)
{
	free(table->slots);
	*table = (struct idmap_table){0};
}

static void table_put(struct idmap_table *table, uint64_t id, void *value)
{
	*idmap_find(table, id) = (struct idmap_slot){.id = id, .value = value};
	table->count++;
}

/* Closes the gap at slot i, so that probing never meets an empty slot too early (Knuth 6.4, algorithm R). */
static void close_gap(struct idmap_table *table, size_t i)
{
	size_t mask = table->capacity - 1;

	for (size_t j = (i + 1) & mask; table->slots[j].value; j = (j + 1) & mask) {
		size_t h = idmap_home(table->slots[j].id, table->capacity);
		if (((j - h) & mask) >= ((j - i) & mask)) {
			table->slots[i] = table->slots[j];
			i = j;
		}
	}
	table->slots[i].value = NULL;
}

static void *table_take(struct idmap_table *table, struct idmap_slot *slot)
{
	void *value = slot->value;

	table->count--;
	close_gap(table, (size_t)(slot - table->slots));
	return value;
}

/* Returns the next used slot. Slots before `taken` stay empty, because gaps are filled from later slots. NULL:
 * the slots looked at are empty. */
static struct idmap_slot *table_next(struct idmap_table *table, unsigned looks)
{
	for (unsigned n = 0; table->count && n < looks; n++) {
		struct idmap_slot *slot = &table->slots[table->taken];

		if (slot->value)
			return slot;
		table->taken++;
	}
	return NULL;
}

/*
 * Moves some values. An old table of C slots has C / 2 values at most, so 3 C / 16 calls move all of them. The
 * new table has room for C / 2 more, so it is not full before the old one is empty.
 */
static void move_some(struct idmap *map)
{
	for (unsigned n = 0; map->old.count && n < IDMAP_MOVES; n++) {
		struct idmap_slot *slot = table_next(&map->old, 1);

		if (!slot)
			continue;
		table_put(&map->now, slot->id, slot->value);
		table_take(&map->old, slot);
	}
	if (!map->old.count)
		table_free(&map->old);
}

static int grow(struct idmap *map)
{
	struct idmap_table bigger = {.capacity = map->now.capacity ? map->now.capacity * 2 : 8};

	bigger.slots = calloc(bigger.capacity, sizeof *bigger.slots);
	if (!bigger.slots)
		return KOPS_E_NOMEM;
	table_free(&map->old);
	map->old = map->now;
	map->old.taken = 0;
	map->now = bigger;
	return 0;
}

int idmap_put(struct idmap *map, uint64_t id, void *value)
{
	if (idmap_get(map, id))
		return KOPS_E_EXISTS;
	if ((map->count + 1) * 2 > map->now.capacity) {
		int rc = grow(map);
		if (rc < 0)
			return rc;
	}
	move_some(map);
	table_put(&map->now, id, value);
	map->count++;
	return 0;
}

static void *remove_from(struct idmap_table *table, uint64_t id)
{
	struct idmap_slot *slot = table->count ? idmap_find(table, id) : NULL;

	return slot && slot->value ? table_take(table, slot) : NULL;
}

void *idmap_remove(struct idmap *map, uint64_t id)
{
	void *value = remove_from(&map->now, id);

	if (!value)
		value = remove_from(&map->old, id);
	map->count -= value != NULL;
	return value;
}

void *idmap_take_next(struct idmap *map)
{
	struct idmap_table *table = map->old.count ? &map->old : &map->now;
	struct idmap_slot *slot = table_next(table, IDMAP_LOOKS);

	if (!slot)
		return NULL;
	map->count--;
	return table_take(table, slot);
}

static void each_of(const struct idmap_table *table, void (*visit)(void *value, void *arg), void *arg)
{
	for (size_t i = 0; i < table->capacity; i++)
		if (table->slots[i].value)
			visit(table->slots[i].value, arg);
}

void idmap_each(const struct idmap *map, void (*visit)(void *value, void *arg), void *arg)
{
	each_of(&map->now, visit, arg);
	each_of(&map->old, visit, arg);
}

void idmap_clear(struct idmap *map)
{
	table_free(&map->now);
	table_free(&map->old);
	map->count = 0;
}
