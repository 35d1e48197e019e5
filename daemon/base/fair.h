/*
 * fair.h: start-time fair queuing (Goyal, Vin and Cheng 1996): the party that has had least goes next.
 *
 * Each party has a virtual time, which advances by what it is charged. The queue's clock is the virtual time at
 * which the last party began. A party that was idle starts at the clock, so idling saves nothing up. When no
 * party wants anything, fair_forget() moves the clock past all of them.
 *
 * A zeroed queue is empty, and a zeroed party waits in none. The caller chooses the unit.
 */
#ifndef KOPS_FAIR_H
#define KOPS_FAIR_H

#include "base/list.h"

struct fair_queue {
	struct list waiting; /* parties, in no order */
	double clock;
	double latest; /* the largest virtual time of any party */
};

struct fair_party {
	struct list_link link; /* in fair_queue.waiting */
	double vtime;
};

/* Returns true if a goes before b. The party of less virtual time must go first if nothing else decides. */
typedef bool fair_order(const struct fair_queue *queue, const struct fair_party *a, const struct fair_party *b);

static inline bool fair_waits(const struct fair_party *party)
{
	return list_has(&party->link);
}

/* Call it when a party was idle: it has saved nothing up. */
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

/* Returns true if the party may go next, by a limit that the caller of fair_next_within() gives. */
typedef bool fair_filter(const struct fair_party *party, double limit);

/*
 * The waiting party that goes next, of those that suit (NULL: all do); NULL: there is none. Of equal parties,
 * the one that began to wait last.
 */
static inline struct fair_party *fair_next_within(const struct fair_queue *queue, fair_order *before,
                                                  fair_filter *suits, double limit)
{
	struct fair_party *best = NULL, *p;

	list_for_each (p, &queue->waiting, link)
		if ((!suits || suits(p, limit)) && (!best || before(queue, p, best)))
			best = p;
	return best;
}

static inline struct fair_party *fair_next(const struct fair_queue *queue, fair_order *before)
{
	return fair_next_within(queue, before, NULL, 0);
}

/* Call it when the party's service begins: parties that arrive later start there. */
static inline void fair_begin(struct fair_queue *queue, const struct fair_party *party)
{
	queue->clock = party->vtime;
}

/* Charges a party; cost is negative if it was charged too much. */
static inline void fair_charge(struct fair_queue *queue, struct fair_party *party, double cost)
{
	party->vtime += cost;
	if (party->vtime > queue->latest)
		queue->latest = party->vtime;
}

/* Forgets past use. No party may wait or be in service. */
static inline void fair_forget(struct fair_queue *queue)
{
	PRE(list_is_empty(&queue->waiting));
	queue->clock = queue->latest;
}

/* Returns true if the party is ahead of its share. */
static inline bool fair_is_ahead(const struct fair_queue *queue, const struct fair_party *party)
{
	return party->vtime > queue->clock;
}

#endif
