#include "usage/load.h"

#include <math.h>

#define MEMORY_NS 1e9
#define STEP_NS   20000000u

/* Spreads recent work over the time since the last call. Overlapping pieces count as no more than all of it. */
static void weigh(struct load *l, uint64_t now_ns)
{
	double passed_ns, kept, rate;

	if (now_ns <= l->at_ns)
		return;
	passed_ns = (double)(now_ns - l->at_ns);
	kept = exp(-passed_ns / MEMORY_NS);
	rate = (double)l->recent_ns / passed_ns;
	l->share = l->share * kept + (rate < 1 ? rate : 1) * (1 - kept);
	l->at_ns = now_ns;
	l->recent_ns = 0;
}

static void weigh_after_a_step(struct load *l, uint64_t now_ns)
{
	if (now_ns > l->at_ns && now_ns - l->at_ns >= STEP_NS)
		weigh(l, now_ns);
}

void load_note(struct load *l, uint64_t busy_ns, uint64_t now_ns)
{
	uint64_t began_ns = busy_ns < now_ns ? now_ns - busy_ns : 0;

	weigh_after_a_step(l, began_ns); /* so that work is not spread over the pause before it */
	l->recent_ns += busy_ns;
	weigh_after_a_step(l, now_ns);
}

double load_share(const struct load *load, uint64_t live_ns, uint64_t now_ns)
{
	struct load l = *load;

	load_note(&l, live_ns, now_ns);
	weigh(&l, now_ns);
	return l.share;
}
