/*
 * choice.h: measures what the daemon's choice of kernels loses against the fastest allowed one, on random
 * shapes. Prints a table, CSV with all kernels' figures, or JSON.
 */
#ifndef KOPS_BENCH_CHOICE_CHOICE_H
#define KOPS_BENCH_CHOICE_CHOICE_H

#include "plan.h"

/* The plan must be settled. Returns an exit code. */
int bench_choice(struct bench_plan *plan);

#endif
