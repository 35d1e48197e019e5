/* clock.h: monotonic time. */
#ifndef KOPS_CLOCK_H
#define KOPS_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Microseconds from a to b; 0 when b is earlier. */
static inline double clock_us(uint64_t a_ns, uint64_t b_ns)
{
	return b_ns > a_ns ? (double)(b_ns - a_ns) / 1e3 : 0.0;
}

#endif
