#include "usage/usage.h"

void usage_note_done(struct usage *u, const struct cost *cost, uint64_t queue_ns, uint64_t total_ns)
{
	u->jobs_done++;
	u->cost.flops += cost->flops;
	u->cost.bytes += cost->bytes;
	u->queue_us += (double)queue_ns / 1e3;
	u->total_us += (double)total_ns / 1e3;
	latency_note(&u->latency, total_ns);
}

double usage_device_us(struct usage *u)
{
	if (u->told_us < u->device_us + u->now.live_us)
		u->told_us = u->device_us + u->now.live_us;
	return u->told_us;
}
