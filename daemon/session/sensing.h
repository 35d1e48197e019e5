/*
 * sensing.h: what devices say of themselves, for Stats: temperature, power, memory. Asking may take
 * milliseconds, so threads do it, when somebody wants to know and what is known is older than a second. They
 * are those that close descriptors, of which more are started while some are busy, since a driver may hang;
 * memory has threads of its own. An idle daemon asks nothing.
 */
#ifndef KOPS_SENSING_H
#define KOPS_SENSING_H

#include "job/engine.h"

struct sensors;

struct sensing {
	struct task task;
	const struct device *device;
	struct account *account;             /* whose time it takes: who asked */
	struct device_sensors latest, fresh; /* fresh: being made, by a worker thread */
	uint64_t asked_ns;                   /* 0: never */
	bool is_out;
	struct sensors *all;
};

struct sensors {
	struct engine *engine;
	uv_timer_t late;
	/* Called when a device has told, and when the second in which others may tell is over. */
	void (*done)(void *user);
	void *user;
	struct sensing of[SCHED_DEVICES_MAX]; /* by device */
};

/* engine, done and user are set. */
void sensors_init(struct sensors *all);

/* Begins to ask each device that can tell, where it is time. */
void sensors_refresh(struct sensors *all, struct account *account);

/* Whether any has yet to tell, of those that were asked within the last second: a driver may hang. */
bool sensors_are_out(const struct sensors *all);

#endif
