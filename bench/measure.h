/* measure.h: measures one kernel on one shape: the first run and its check, warm-up, samples. */
#ifndef KOPS_BENCH_MEASURE_H
#define KOPS_BENCH_MEASURE_H

#include "bench.h"
#include "operands.h"

#define LAUNCHES_MAX 32 /* ops in a job */

/*
 * A sample is one job of equal ops over the sets in turn, timed by the device and divided by their number. Host
 * to host it is one op's wall time. Sampling ends after `reps` samples, after 2 s with at least 5, or after 10
 * s. A run of 5 s or more is not repeated.
 */
struct measurement {
	const char *kernel; /* NULL: the daemon's choice */
	enum bench_mode mode;
	uint64_t reps;
	uint64_t launches; /* ops in a sample, fewer if they would take 5 s; 0: as many as last a millisecond,
	                      up to LAUNCHES_MAX */
	bool check;
	bool settled; /* take the daemon's choice for a shape that it has seen for a while; see
	                 daemon/device/learned.h */
};

/*
 * Fills *ret_row except shape, footprint and peer. A kernel that refuses is no failure: its row has the reason
 * as its note, and no figures.
 */
int measure(struct bench *b, const struct measurement *what, const struct operands *operands,
            struct bench_row *ret_row);

#endif
