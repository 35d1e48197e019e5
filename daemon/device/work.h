/*
 * work.h: work that the loop hands to a device's thread and gets back. In between, the device's thread only
 * borrows it.
 */
#ifndef KOPS_DEVICE_WORK_H
#define KOPS_DEVICE_WORK_H

#include "device/driver.h"

struct device_work {
	struct device_work *next;
	struct run *run; /* a job; NULL: a task, which execute() does as a whole */
	/* Called on the device thread before the run starts. May be NULL if there is a run. */
	void (*execute)(struct device_work *work, const struct driver *driver, struct device_state *dev);
	void (*done)(struct device_work *work); /* on the loop thread */
	bool beside;       /* computed beside a longer run, by the device's second thread */
	double planned_us; /* private to device.c: counted until the work comes back, ended or paused */
};

/* Passes work from one thread to another, without a lock. */
struct work_stack {
	struct device_work *newest; /* atomic */
};

static inline bool work_stack_is_empty(const struct work_stack *s)
{
	return !__atomic_load_n(&s->newest, __ATOMIC_SEQ_CST);
}

/* Pushes a chain from newest to oldest at once. Returns true if the stack was empty, so that the taker must be
 * told. */
static inline bool work_stack_push_all(struct work_stack *s, struct device_work *newest,
                                       struct device_work *oldest)
{
	struct device_work *before = __atomic_load_n(&s->newest, __ATOMIC_RELAXED);

	do
		oldest->next = before;
	while (!__atomic_compare_exchange_n(&s->newest, &before, newest, true, __ATOMIC_SEQ_CST,
	                                    __ATOMIC_RELAXED));
	return !before;
}

static inline bool work_stack_push(struct work_stack *s, struct device_work *w)
{
	return work_stack_push_all(s, w, w);
}

/* Returns all work as a list, oldest first. */
static inline struct device_work *work_stack_take_all(struct work_stack *s)
{
	struct device_work *w, *list = NULL, *older;

	if (work_stack_is_empty(s))
		return NULL;
	w = __atomic_exchange_n(&s->newest, NULL, __ATOMIC_SEQ_CST);
	for (; w; w = older) {
		older = w->next;
		w->next = list;
		list = w;
	}
	return list;
}

#endif
