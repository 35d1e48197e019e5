/*
 * seen.h: a set of hashes, of a fixed size. It forgets some when it is full, or when two threads add at once.
 * Any thread. Zeros are an empty set.
 */
#ifndef KOPS_KERNELS_SEEN_H
#define KOPS_KERNELS_SEEN_H

#include <stdbool.h>
#include <stdint.h>

#define SEEN_WAYS 4u
#define SEEN_SETS 2048u

struct seen {
	uint64_t hashes[SEEN_SETS][SEEN_WAYS]; /* atomic; 0: free. The latest of a set comes first */
};

static inline bool seen_has(const struct seen *seen, uint64_t hash)
{
	const uint64_t *set = seen->hashes[hash % SEEN_SETS];

	for (unsigned i = 0; i < SEEN_WAYS; i++)
		if (__atomic_load_n(&set[i], __ATOMIC_RELAXED) == hash)
			return true;
	return false;
}

static inline void seen_add(struct seen *seen, uint64_t hash)
{
	uint64_t *set = seen->hashes[hash % SEEN_SETS], next = hash;

	if (seen_has(seen, hash))
		return;
	for (unsigned i = 0; i < SEEN_WAYS; i++)
		next = __atomic_exchange_n(&set[i], next, __ATOMIC_RELAXED);
}

#endif
