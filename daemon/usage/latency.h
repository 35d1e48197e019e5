/*
 * latency.h: how long the latest jobs took, as a histogram of 1 KiB with buckets of equal ratio, like
 * HdrHistogram.
 *
 * Each power of two from 256 ns to 18 minutes has 16 buckets, so a quantile is within 1/32 of an actual
 * latency. When 65535 jobs are counted, all counts are halved. So the histogram is of the latest 32 to 65
 * thousand jobs, and older ones count less and less.
 */
#ifndef KOPS_LATENCY_H
#define KOPS_LATENCY_H

#include <stdint.h>

#define LATENCY_BITS_MIN 8u
#define LATENCY_BITS_MAX 40u
#define LATENCY_STEPS    16u /* buckets in a power of two */
#define LATENCY_BUCKETS  ((LATENCY_BITS_MAX - LATENCY_BITS_MIN) * LATENCY_STEPS)

struct latency {
	uint16_t counts[LATENCY_BUCKETS];
	uint32_t total; /* at most UINT16_MAX, so that no count overflows */
};

/* Values beyond either end count in the last bucket there. */
void latency_note(struct latency *latency, uint64_t ns);

/* The latency, in µs, that this share of the jobs did not exceed: 0.99 for p99. 0: no jobs. */
double latency_quantile_us(const struct latency *latency, double share);

#endif
