/*
 * forecast.h: when a device's next run should end, by its plan. The device's thread sleeps while no run is near
 * its end.
 */
#ifndef KOPS_FORECAST_H
#define KOPS_FORECAST_H

#include <stdbool.h>
#include <stdint.h>

/* The longest sleep while runs are in flight, so that a fault which wakes nobody is noticed. */
#define SLEEP_OUT_NS 20000000u

struct forecast {
	unsigned out;           /* runs */
	uint64_t planned_ns;    /* their planned time, one after the other */
	uint64_t due_ns;        /* when all should have ended */
	uint64_t next_ns;       /* when the next should end */
	bool next_is_known;     /* known from earlier times of the same run */
	uint64_t spin_ns;       /* spin this long before and after next_ns instead of sleeping */
	uint64_t call_ns;       /* wake the loop this long before next_ns */
	uint64_t called_for_ns; /* the next_ns that the loop was last woken for */
};

/* is_known: plan_ns is the time that this run took before. watched: the loop polls for its end. */
void forecast_started(struct forecast *f, uint64_t now, uint64_t plan_ns, bool is_known, bool watched);

static inline void forecast_ended(struct forecast *f, uint64_t plan_ns)
{
	f->out--;
	f->planned_ns -= plan_ns;
}

/* Call it after runs that ended together. */
void forecast_left(struct forecast *f, uint64_t now);

/* While runs are in flight: how long to sleep, in ns; 0: the end of one is near. */
uint64_t forecast_nap_ns(const struct forecast *f, uint64_t now);

/*
 * Returns true if a run may end within a sleep of ns, so that the device must wake the thread. That call keeps
 * CUDA busy just when the next run should start.
 */
bool forecast_may_end_in(const struct forecast *f, uint64_t now, uint64_t ns);

/* Returns until when the loop should stay awake for the end of a run, once for each end. 0: it need not. */
uint64_t forecast_call_until_ns(struct forecast *f, uint64_t now);

#endif
