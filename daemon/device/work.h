/*
 * work.h: what the loop hands to a device's thread, and gets back.
 *
 * The device's thread only borrows it in between.
 */
#ifndef KOPS_DEVICE_WORK_H
#define KOPS_DEVICE_WORK_H

#include "device/backend.h"

struct device_work {
	struct device_work *next;
	struct run *run; /* a job; NULL: a task, all of which happens in execute() */
	/* On the device thread, before the run starts. NULL allowed with a run. */
	void (*execute)(struct device_work *work, const struct backend *backend, struct backend_device *dev);
	void (*done)(struct device_work *work); /* on the loop thread */
	double planned_us;                      /* device.c's own: until it comes back, through or paused */
};

struct work_list {
	struct device_work *head, **tail;
};

static inline void work_list_init(struct work_list *l)
{
	l->head = NULL;
	l->tail = &l->head;
}

static inline void work_list_push(struct work_list *l, struct device_work *w)
{
	w->next = NULL;
	*l->tail = w;
	l->tail = &w->next;
}

static inline void work_list_append(struct work_list *l, struct work_list *more)
{
	*l->tail = more->head;
	l->tail = more->tail;
}

static inline struct device_work *work_list_take_all(struct work_list *l)
{
	struct device_work *all = l->head;

	work_list_init(l);
	return all;
}

#endif
