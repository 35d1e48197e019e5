/*
 * list.h: the daemon's doubly linked list. Structs join it by a member of type struct list_link. So a struct
 * can be in several lists at once, and nothing is allocated.
 *
 * A zeroed list is empty, and a zeroed link is in none. A link knows its list, so it can be asked whether it is
 * in one, and leaves it in constant time. A list that is not empty must not move in memory.
 *
 * Invariants: the links of a list point to it; each is its successor's predecessor; the first has no
 * predecessor and the last has no successor.
 */
#ifndef KOPS_LIST_H
#define KOPS_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/invariant.h"

/* The struct that has this member at this address, which is not NULL. */
#define container_of(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

struct list {
	struct list_link *first, *last;
};

struct list_link {
	struct list_link *next, *prev;
	struct list *list; /* NULL: the link is in none */
};

static inline bool list_is_empty(const struct list *list)
{
	INVARIANT(!list->first == !list->last);
	return !list->first;
}

static inline bool list_has(const struct list_link *link)
{
	return link->list;
}

/* Returns true if the link and its neighbours agree. */
static inline bool list_link_is_sound(const struct list_link *link)
{
	const struct list *list = link->list;

	return list &&
	       (link->prev ? link->prev->next == link && link->prev->list == list : list->first == link) &&
	       (link->next ? link->next->prev == link && link->next->list == list : list->last == link);
}

/* Inserts the link after `before`, which is in the list; NULL: first. */
static inline void list_insert(struct list *list, struct list_link *before, struct list_link *link)
{
	struct list_link *after = before ? before->next : list->first;

	PRE(!list_has(link));
	PRE(!before || before->list == list);
	*link = (struct list_link){.next = after, .prev = before, .list = list};
	if (before)
		before->next = link;
	else
		list->first = link;
	if (after)
		after->prev = link;
	else
		list->last = link;
	POST(list_link_is_sound(link));
}

static inline void list_push_first(struct list *list, struct list_link *link)
{
	list_insert(list, NULL, link);
}

static inline void list_push_last(struct list *list, struct list_link *link)
{
	list_insert(list, list->last, link);
}

/* Removes the link from its list. */
static inline void list_remove(struct list_link *link)
{
	struct list *list = link->list;

	PRE(list_link_is_sound(link));
	if (link->prev)
		link->prev->next = link->next;
	else
		list->first = link->next;
	if (link->next)
		link->next->prev = link->prev;
	else
		list->last = link->prev;
	*link = (struct list_link){0};
	POST(!list->first == !list->last);
}

/* Removes and returns the first link. NULL: the list is empty. */
static inline struct list_link *list_pop(struct list *list)
{
	struct list_link *first = list->first;

	if (first)
		list_remove(first);
	return first;
}

static inline void *list_container(const struct list_link *link, size_t offset)
{
	return link ? (char *)link - offset : NULL;
}

/* The first or last struct; NULL: the list is empty. */
#define list_first(list, type, member) ((type *)list_container((list)->first, offsetof(type, member)))
#define list_last(list, type, member)  ((type *)list_container((list)->last, offsetof(type, member)))

/* The next or previous struct; NULL: there is none. */
#define list_next(object, member)                                                                              \
	((__typeof__(object))list_container((object)->member.next, offsetof(__typeof__(*(object)), member)))
#define list_prev(object, member)                                                                              \
	((__typeof__(object))list_container((object)->member.prev, offsetof(__typeof__(*(object)), member)))

/* Removes and returns the first struct. NULL: the list is empty. */
#define list_take(list, type, member) ((type *)list_container(list_pop(list), offsetof(type, member)))

/* Loops over all structs; `object` must stay in the list meanwhile. */
#define list_for_each(object, list, member)                                                                    \
	for ((object) = list_first(list, __typeof__(*(object)), member); (object);                             \
	     (object) = list_next(object, member))

/* The same; `object` may be removed or freed meanwhile, but not `following`. */
#define list_for_each_safe(object, following, list, member)                                                    \
	for ((object) = list_first(list, __typeof__(*(object)), member);                                       \
	     (object) && ((following) = list_next(object, member), true); (object) = (following))

/*
 * A walk in steps. The list may change between two steps: before removing a link, call list_walks_pass() for
 * the walks in the list.
 */
struct list_walk {
	struct list_link link; /* in the list of walks */
	struct list_link *at;  /* NULL: the walk is at the end */
};

static inline void list_walk_end(struct list_walk *walk)
{
	if (list_has(&walk->link))
		list_remove(&walk->link);
}

/* Begins, or begins again, at the head of the list. */
static inline void list_walk_begin(struct list_walk *walk, struct list *walks, const struct list *list)
{
	list_walk_end(walk);
	walk->at = list->first;
	list_push_first(walks, &walk->link);
}

static inline void list_walks_pass(const struct list *walks, const struct list_link *link)
{
	struct list_walk *walk;

	list_for_each (walk, walks, link)
		if (walk->at == link)
			walk->at = link->next;
}

/* The walk's current struct; NULL: it is at the end. */
#define list_walk_at(walk, type, member) ((type *)list_container((walk)->at, offsetof(type, member)))

static inline void list_walk_on(struct list_walk *walk)
{
	walk->at = walk->at->next;
}

#endif
