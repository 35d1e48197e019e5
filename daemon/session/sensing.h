/*
 * sensing.h: what devices say of themselves, for Stats: temperature, power, memory. Asking may take
 * milliseconds, so threads do it, when somebody wants to know and what is known is older than a second. They
 * are those that close descriptors, of which more are started while some are busy, since a driver may hang;
 * memory has threads of its own. An idle daemon asks nothing.
 */
#ifndef KOPS_SENSING_H
#define KOPS_SENSING_H

#include "job/engine.h"

struct sensing {
	struct task task;
	const struct device *device;
	struct accounts *accounts;
	struct account *account;             /* whose time it takes: who asked */
	struct device_sensors latest, fresh; /* fresh: being made, by a worker thread */
	uint64_t asked_ns;                   /* 0: never */
	bool is_out;
	/* Of who asked. */
	void (*done)(void *user);
	void *user;
};

/* Begins to ask each device that can tell, where it is time. done(user) is called when one has told. */
void sensing_refresh(struct sensing all[SCHED_DEVICES_MAX], struct engine *engine, struct account *account,
                     void (*done)(void *user), void *user);

/* Whether any has yet to tell, of those that were asked within the last second: a driver may hang. */
bool sensing_is_out(const struct sensing all[SCHED_DEVICES_MAX]);

#endif
