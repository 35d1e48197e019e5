/*
 * simulated_clock.h: a test's own CLOCK_MONOTONIC, which moves only when the test says so. One file of a
 * program includes it.
 */
#ifndef KOPS_TEST_SIMULATED_CLOCK_H
#define KOPS_TEST_SIMULATED_CLOCK_H

#include <stdint.h>
#include <time.h>

static uint64_t simulated_ns = 1000000000;

/* Replaces the C library's, also for libuv, as programs come before libraries. */
int clock_gettime(clockid_t clock, struct timespec *t)
{
	(void)clock;
	t->tv_sec = (time_t)(simulated_ns / 1000000000u);
	t->tv_nsec = (long)(simulated_ns % 1000000000u);
	return 0;
}

#endif
