/*
 * forecast.h: when the next of a device's runs should end, by plan. Its thread sleeps while none is near its
 * end.
 */
#ifndef KOPS_FORECAST_H
#define KOPS_FORECAST_H

#include <stdbool.h>
#include <stdint.h>

/* While runs are out a sleep ends by itself, so that a fault which wakes nobody is seen. */
#define SLEEP_OUT_NS 20000000u

struct forecast {
	unsigned out;           /* runs */
	uint64_t planned_ns;    /* what they take, one after the other */
	uint64_t due_ns;        /* when they should all be through */
	uint64_t next_ns;       /* when the next should be */
	bool next_is_known;     /* from the same run's times before */
	uint64_t spin_ns;       /* around next_ns, instead of sleeping */
	uint64_t call_ns;       /* before next_ns the loop is called */
	uint64_t called_for_ns; /* the next_ns for which it was */
};

/* repeats: it took so long before. watched: its caller looks for its end without sleeping. */
void forecast_started(struct forecast *f, uint64_t now, uint64_t plan_ns, bool repeats, bool watched);

static inline void forecast_ended(struct forecast *f, uint64_t plan_ns)
{
	f->out--;
	f->planned_ns -= plan_ns;
}

/* After those that ended together. */
void forecast_left(struct forecast *f, uint64_t now);

/* With runs out: how long to sleep, ns; 0: the end of one is near. */
uint64_t forecast_nap_ns(const struct forecast *f, uint64_t now);

/*
 * Whether one may end within a sleep of so many ns, so that the device has to wake the thread: its call would
 * keep the driver busy just when the next run is to be started.
 */
bool forecast_may_end_in(const struct forecast *f, uint64_t now, uint64_t ns);

/* Until when the loop should be awake from now on, since the end of a run is near; says so once. 0: it need
 * not. */
uint64_t forecast_call_until_ns(struct forecast *f, uint64_t now);

#endif
