/*
 * sensing.h: sensors of devices, for Stats: temperature, power, memory. Reading them may take milliseconds. So
 * threads do it, on request, if the last values are older than a second. They are the threads that close
 * descriptors: more of these are started while some are busy, since a driver may hang. Memory has threads of
 * its own. An idle daemon reads no sensors.
 */
#ifndef KOPS_SENSING_H
#define KOPS_SENSING_H

#include "job/engine.h"

struct sensors;

struct sensing {
	struct task task;
	const struct device *device;
	struct account *account;             /* the user who asked, charged for the time */
	struct device_sensors latest, fresh; /* fresh: written by a worker thread */
	uint64_t asked_ns;                   /* 0: never */
	bool is_out;
	struct sensors *all;
};

struct sensors {
	struct engine *engine;
	uv_timer_t late;
	/* Called when a device has answered, and a second after the request, when the wait is over. */
	void (*done)(void *user);
	void *user;
	struct sensing of[SCHED_DEVICES_MAX]; /* indexed by device */
};

/* Initializes sensors. engine, done and user are set. */
void sensors_init(struct sensors *all);

/* Starts to read the sensors of each device that has some and whose last values are old. */
void sensors_refresh(struct sensors *all, struct account *account);

/* Returns true if a device that was asked within the last second has not answered. A driver may hang. */
bool sensors_are_out(const struct sensors *all);

#endif
