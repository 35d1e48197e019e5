/*
 * measure.h: one kernel on one shape: the first run and the check of its result, warm-up, samples.
 */
#ifndef KOPS_BENCH_MEASURE_H
#define KOPS_BENCH_MEASURE_H

#include "bench.h"
#include "operands.h"

#define LAUNCHES_MAX 32 /* ops in a job */

/*
 * A sample is one job of equal ops over the sets in turn, timed by the device and divided by their number. Host
 * to host it is one op's wall time. Sampling ends after `reps` samples, after 2 s with 5 of them, or after 10
 * s; a run of 5 s and more is not repeated.
 */
struct measurement {
	const char *kernel; /* NULL: the daemon's choice */
	enum bench_mode mode;
	uint64_t reps;
	uint64_t launches; /* ops in a sample, fewer where they would take 5 s; 0: as many as last a
	                      millisecond, up to LAUNCHES_MAX */
	bool check;
	bool settled; /* the daemon's choice: the one for a shape that it has seen for a while;
	                 daemon/device/learned.h */
};

/*
 * Fills *ret_row but for shape, footprint and peer. A kernel that refuses is no failure: the row then has its
 * reason as the note, and is not measured.
 */
int measure(struct bench *b, const struct measurement *what, const struct operands *operands,
            struct bench_row *ret_row);

#endif
