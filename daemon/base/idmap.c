#include "base/idmap.h"

#include <stdlib.h>
#include <sys/random.h>

#include "base/clock.h"
#include "kops_types.h"

uint64_t idmap_key;

/* Early after a boot there may be no random numbers yet. */
void idmap_choose_key(void)
{
	if (getrandom(&idmap_key, sizeof idmap_key, GRND_NONBLOCK) != (ssize_t)sizeof idmap_key)
		idmap_key = clock_ns();
}

static int grow(struct idmap *map)
{
	struct idmap bigger = {.capacity = map->capacity ? map->capacity * 2 : 8};

	bigger.slots = calloc(bigger.capacity, sizeof *bigger.slots);
	if (!bigger.slots)
		return KOPS_E_NOMEM;
	for (size_t i = 0; i < map->capacity; i++)
		if (map->slots[i].value)
			*idmap_find(&bigger, map->slots[i].id) = map->slots[i];
	bigger.count = map->count;
	free(map->slots);
	*map = bigger;
	return 0;
}

int idmap_put(struct idmap *map, uint64_t id, void *value)
{
	struct idmap_slot *slot;

	if (idmap_get(map, id))
		return KOPS_E_EXISTS;
	if ((map->count + 1) * 2 > map->capacity) {
		int rc = grow(map);
		if (rc < 0)
			return rc;
	}
	slot = idmap_find(map, id);
	slot->id = id;
	slot->value = value;
	map->count++;
	return 0;
}

/* Closes the gap at slot i, so that probing never meets a hole (Knuth 6.4, algorithm R). */
static void close_gap(struct idmap *map, size_t i)
{
	size_t mask = map->capacity - 1;

	for (size_t j = (i + 1) & mask; map->slots[j].value; j = (j + 1) & mask) {
		size_t h = idmap_home(map->slots[j].id, map->capacity);
		if (((j - h) & mask) >= ((j - i) & mask)) {
			map->slots[i] = map->slots[j];
			i = j;
		}
	}
	map->slots[i].value = NULL;
}

void *idmap_remove(struct idmap *map, uint64_t id)
{
	struct idmap_slot *slot;
	void *value;

	if (!map->count)
		return NULL;
	slot = idmap_find(map, id);
	value = slot->value;
	if (!value)
		return NULL;
	map->count--;
	close_gap(map, (size_t)(slot - map->slots));
	return value;
}

/* Slots before that are empty, and stay so: what fills a gap comes from behind it. */
void *idmap_take_next(struct idmap *map)
{
	for (unsigned n = 0; map->count && n < IDMAP_LOOKS; n++) {
		void *value = map->slots[map->taken].value;

		if (value) {
			map->count--;
			close_gap(map, map->taken);
			return value;
		}
		map->taken++;
	}
	return NULL;
}

void idmap_each(const struct idmap *map, void (*visit)(void *value, void *arg), void *arg)
{
	for (size_t i = 0; i < map->capacity; i++)
		if (map->slots[i].value)
			visit(map->slots[i].value, arg);
}

void idmap_clear(struct idmap *map)
{
	free(map->slots);
	*map = (struct idmap){0};
}
