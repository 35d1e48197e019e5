#include "usage/latency.h"

#include <math.h>

#define STEP_BITS 4u
_Static_assert(1u << STEP_BITS == LATENCY_STEPS, "");

static unsigned bucket_of(uint64_t ns)
{
	unsigned bits;

	if (ns < 1ull << LATENCY_BITS_MIN)
		return 0;
	if (ns >= 1ull << LATENCY_BITS_MAX)
		return LATENCY_BUCKETS - 1;
	bits = 63u - (unsigned)__builtin_clzll(ns);
	return (bits - LATENCY_BITS_MIN) * LATENCY_STEPS +
	       ((unsigned)(ns >> (bits - STEP_BITS)) & (LATENCY_STEPS - 1));
}

static double middle_ns(unsigned bucket)
{
	unsigned bits = LATENCY_BITS_MIN + bucket / LATENCY_STEPS;
	double step_ns = (double)(1ull << (bits - STEP_BITS));

	return step_ns * (LATENCY_STEPS + bucket % LATENCY_STEPS + 0.5);
}

static void halve(struct latency *l)
{
	l->total = 0;
	for (unsigned i = 0; i < LATENCY_BUCKETS; i++) {
		l->counts[i] /= 2;
		l->total += l->counts[i];
	}
}

void latency_note(struct latency *l, uint64_t ns)
{
	l->counts[bucket_of(ns)]++;
	if (++l->total == UINT16_MAX)
		halve(l);
}

double latency_quantile_us(const struct latency *l, double share)
{
	uint32_t rank = (uint32_t)ceil(share * l->total), seen = 0;

	for (unsigned i = 0; l->total && i < LATENCY_BUCKETS; i++) {
		seen += l->counts[i];
		if (seen && seen >= rank)
			return middle_ns(i) / 1e3;
	}
	return 0;
}
