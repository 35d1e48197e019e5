/*
 * usage.h: what the jobs of a user or session were and took. Its size is constant: a job allocates nothing.
 * Loop thread only.
 */
#ifndef KOPS_USAGE_H
#define KOPS_USAGE_H

#include "kernel.h"
#include "usage/latency.h"

struct job;

/* What runs now. Zeros, except while a list is made: figures.h. */
struct usage_now {
	unsigned running; /* jobs that have started, paused ones too */
	const struct job *oldest;
	double live_us; /* of running jobs, since their devices last returned one */
};

struct usage {
	uint64_t jobs_done, jobs_failed; /* failed: all that did not succeed, cancelled ones too */
	struct cost cost;                /* of jobs done: counted from the shapes */
	double queue_us, total_us;       /* sums over jobs done: from arrival to start, and to the end */
	double device_us;                /* of all jobs, slice by slice */
	double told_us;                  /* the largest value that usage_device_us() returned */
	struct latency latency;          /* of jobs done: arrival to the end */
	struct usage_now now;
};

/* Counts a job that is done. */
void usage_note_done(struct usage *usage, const struct cost *cost, uint64_t queue_ns, uint64_t total_ns);

/* Device time, including what runs now. It never decreases, because monitors take differences. */
double usage_device_us(struct usage *usage);

#endif
