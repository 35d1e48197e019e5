/*
 * fair.h: start-time fair queuing (Goyal, Vin and Cheng 1996): who has had least of something goes next.
 *
 * Each party has a virtual time, by which it is charged for what it gets. The queue's clock is the virtual time
 * at which the last one began. A party that was idle starts at the clock, so idling saves up nothing. Where
 * nobody wants anything any more, fair_forget() moves the clock past all of them.
 *
 * Zero is an empty queue, and a party that waits in none. The unit is the caller's.
 */
#ifndef KOPS_FAIR_H
#define KOPS_FAIR_H

#include "base/list.h"

struct fair_queue {
	struct list waiting; /* parties, in no order */
	double clock;
	double latest; /* the largest virtual time that anybody was charged up to */
};

struct fair_party {
	struct list_link link; /* in fair_queue.waiting */
	double vtime;
};

/* Whether a goes before b. It sees to it that one of less virtual time does so where nothing else decides. */
typedef bool fair_order(const struct fair_queue *queue, const struct fair_party *a, const struct fair_party *b);

static inline bool fair_waits(const struct fair_party *party)
{
	return list_has(&party->link);
}

/* The party was idle: it has saved up nothing. */
static inline void fair_catch_up(const struct fair_queue *queue, struct fair_party *party)
{
	if (party->vtime < queue->clock)
		party->vtime = queue->clock;
	POST(party->vtime >= queue->clock);
}

static inline void fair_wait(struct fair_queue *queue, struct fair_party *party)
{
	list_push_first(&queue->waiting, &party->link);
}

static inline void fair_leave(struct fair_party *party)
{
	list_remove(&party->link);
}

/* The waiting party that goes next; NULL: none waits. Of equal ones, the one that began to wait last. */
static inline struct fair_party *fair_next(const struct fair_queue *queue, fair_order *before)
{
	struct fair_party *best = NULL, *p;

	list_for_each (p, &queue->waiting, link)
		if (!best || before(queue, p, best))
			best = p;
	return best;
}

/* The party's turn begins: those that come from now on start there. */
static inline void fair_begin(struct fair_queue *queue, const struct fair_party *party)
{
	queue->clock = party->vtime;
}

/* What it gets; less than 0 where it was charged too much. */
static inline void fair_charge(struct fair_queue *queue, struct fair_party *party, double cost)
{
	party->vtime += cost;
	if (party->vtime > queue->latest)
		queue->latest = party->vtime;
}

/* Nobody waits and nobody is at it: what each had does not count any more. */
static inline void fair_forget(struct fair_queue *queue)
{
	PRE(list_is_empty(&queue->waiting));
	queue->clock = queue->latest;
}

/* Whether the party has had more than its share so far. */
static inline bool fair_is_ahead(const struct fair_queue *queue, const struct fair_party *party)
{
	return party->vtime > queue->clock;
}

#endif
