/*
 * choice.h: what the daemon's choice of kernels loses against the fastest that it may take, on random
 * shapes. As a table, as CSV with all kernels' figures, or as JSON.
 */
#ifndef KOPS_BENCH_CHOICE_CHOICE_H
#define KOPS_BENCH_CHOICE_CHOICE_H

#include "plan.h"

/* The plan is settled. An exit code. */
int bench_choice(struct bench_plan *plan);

#endif
