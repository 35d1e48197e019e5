/* random_ops.h: random numbers for tests that compare a structure with a plain model. */
#ifndef KOPS_TEST_RANDOM_OPS_H
#define KOPS_TEST_RANDOM_OPS_H

#include <stdlib.h>

#include "seed.h"

static inline void begin_random(void)
{
	srand((unsigned)seed_of_run());
}

/* Returns a number from 0 to n - 1. */
static inline unsigned below(unsigned n)
{
	return (unsigned)rand() % n;
}

#endif
