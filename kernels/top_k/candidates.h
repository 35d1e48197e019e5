/*
 * candidates.h: the best k of many keys on the CPU. Which of equal keys has the lower index is better.
 * Candidates are collected until their room is full; quickselect (C. A. R. Hoare, 1961) then leaves the best k.
 * They must come with rising indices, so that one with the threshold's key cannot be among the best any more.
 */
#ifndef KOPS_TOP_K_CANDIDATES_H
#define KOPS_TOP_K_CANDIDATES_H

#include <stdbool.h>
#include <stdint.h>

/* A key in the high bits, then the complement of its index: the larger one is better. */
typedef unsigned __int128 candidate;

struct candidates {
	candidate *list; /* candidates_room() of them */
	uint32_t n, k, room;
	int64_t threshold; /* keys up to this one are no candidates; that of a key is above INT64_MIN */
};

static inline uint64_t candidates_room(uint32_t k)
{
	return 2 * (uint64_t)k + 64;
}

static inline int64_t candidate_index(candidate c)
{
	return (int64_t)(uint32_t) ~(uint32_t)c;
}

static inline int64_t candidate_key(candidate c)
{
	return (int64_t)((uint64_t)(c >> 32) ^ (uint64_t)1 << 63);
}

static inline candidate candidate_of(int64_t key, int64_t index)
{
	return (candidate)((uint64_t)key ^ (uint64_t)1 << 63) << 32 | (uint32_t) ~(uint32_t)index;
}

static inline void candidates_start(struct candidates *c, candidate *list, uint32_t k)
{
	*c = (struct candidates){list, 0, k, (uint32_t)candidates_room(k), INT64_MIN};
}

static inline void candidates_swap(candidate *list, uint32_t i, uint32_t j)
{
	candidate t = list[i];

	list[i] = list[j];
	list[j] = t;
}

/* Sorts few, the best first. */
static inline void candidates_sort_few(candidate *list, uint32_t n)
{
	for (uint32_t i = 1; i < n; i++) {
		candidate next = list[i];
		uint32_t at = i;

		for (; at > 0 && list[at - 1] < next; at--)
			list[at] = list[at - 1];
		list[at] = next;
	}
}

/*
 * Divides [first, end), three or more, so that those before the returned place are no worse than those from it
 * on. Neither side is empty.
 */
static inline uint32_t candidates_divide(candidate *list, uint32_t first, uint32_t end)
{
	uint32_t middle = first + (end - first) / 2, i = first, j = end - 1;

	/* The median of three, so that rows that are sorted are divided in the middle. */
	if (list[middle] > list[first])
		candidates_swap(list, middle, first);
	if (list[end - 1] > list[first])
		candidates_swap(list, end - 1, first);
	if (list[end - 1] > list[middle])
		candidates_swap(list, end - 1, middle);
	candidate pivot = list[middle];

	for (;;) {
		while (list[i] > pivot)
			i++;
		while (list[j] < pivot)
			j--;
		if (i >= j)
			return j + 1;
		candidates_swap(list, i++, j--);
	}
}

#define CANDIDATES_FEW 16

/* Leaves the best k in the first places, in any order. */
static inline void candidates_select(candidate *list, uint32_t n, uint32_t k)
{
	uint32_t first = 0, end = k < n ? n : 0;

	while (end - first > CANDIDATES_FEW) {
		uint32_t at = candidates_divide(list, first, end);
		if (k == at)
			return;
		if (k < at)
			end = at;
		else
			first = at;
	}
	candidates_sort_few(list + first, end - first);
}

/* The best first. */
static inline void candidates_sort(candidate *list, uint32_t n)
{
	while (n > CANDIDATES_FEW) {
		uint32_t at = candidates_divide(list, 0, n);
		if (at < n - at) {
			candidates_sort(list, at);
			list += at;
			n -= at;
		} else {
			candidates_sort(list + at, n - at);
			n = at;
		}
	}
	candidates_sort_few(list, n);
}

/* Leaves the best k, and sets the threshold. */
static inline void candidates_reduce(struct candidates *c)
{
	candidate worst;

	if (c->n < c->k)
		return;
	candidates_select(c->list, c->n, c->k);
	c->n = c->k;
	worst = c->list[0];
	for (uint32_t i = 1; i < c->k; i++)
		worst = c->list[i] < worst ? c->list[i] : worst;
	c->threshold = candidate_key(worst);
}

static inline void candidates_add(struct candidates *c, candidate next)
{
	c->list[c->n++] = next;
	if (c->n == c->room)
		candidates_reduce(c);
}

static inline void candidates_push(struct candidates *c, int64_t key, int64_t index)
{
	if (key > c->threshold)
		candidates_add(c, candidate_of(key, index));
}

/* Leaves the best k, sorted, the best first. */
static inline void candidates_finish(struct candidates *c)
{
	candidates_reduce(c);
	candidates_sort(c->list, c->n);
}

#endif
