/* idmap.h: ids that clients choose → objects. Open addressing; nothing is allocated while it is empty. */
#ifndef KOPS_IDMAP_H
#define KOPS_IDMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct idmap {
	struct idmap_slot *slots;
	size_t capacity; /* power of two, or 0 */
	size_t count;
};

void *idmap_get(const struct idmap *map, uint64_t id); /* NULL: not there */
/* KOPS_E_EXISTS, KOPS_E_NOMEM. value is not NULL. */
int idmap_put(struct idmap *map, uint64_t id, void *value);
void *idmap_remove(struct idmap *map, uint64_t id); /* what was there, or NULL */
/* Calls visit for each value; visit must not change the map. */
void idmap_each(const struct idmap *map, void (*visit)(void *value, void *arg), void *arg);
void idmap_clear(struct idmap *map); /* frees the table, not the values */

#endif
