/*
 * usage.h: what the jobs of one user, or of one session, were and took. Of constant size: nothing is allocated
 * for a job. Loop thread only.
 */
#ifndef KOPS_USAGE_H
#define KOPS_USAGE_H

#include "kernel.h"
#include "usage/latency.h"

struct job;

/* What runs now. Zeros, but while a list is made: figures.h. */
struct usage_now {
	unsigned running; /* jobs that have started, paused ones too */
	const struct job *oldest;
	double live_us; /* of the jobs that devices are at, since these last got one back */
};

struct usage {
	uint64_t jobs_done, jobs_failed; /* failed: all that were not done, cancelled ones too */
	struct cost cost;                /* of jobs done: counted from the shapes */
	double queue_us, total_us;       /* of jobs done: arrival to start, and to the end; summed */
	double device_us;                /* of all jobs, slice by slice */
	double told_us;                  /* the most that usage_device_us() ever said */
	struct latency latency;          /* of jobs done: arrival to the end */
	struct usage_now now;
};

/* A job is done. */
void usage_note_done(struct usage *usage, const struct cost *cost, uint64_t queue_ns, uint64_t total_ns);

/* With what runs now. Never less than it was: monitors take differences. */
double usage_device_us(struct usage *usage);

#endif
