/*
 * bench_random.h: what the daemon's choice of kernels loses against the fastest that it may take, on random
 * shapes. As a table, as CSV with all kernels' figures, or as JSON.
 */
#ifndef KOPS_CLI_BENCH_RANDOM_H
#define KOPS_CLI_BENCH_RANDOM_H

#include "bench_plan.h"

/* The plan is settled. An exit code. */
int bench_random(struct plan *plan);

#endif
