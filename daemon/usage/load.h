/*
 * load.h: the share of about the last second in which a device had work, as an average whose weights fall by a
 * factor of e each second. Its size is constant. A short piece of work costs an addition; all is weighed again
 * only about every STEP.
 */
#ifndef KOPS_LOAD_H
#define KOPS_LOAD_H

#include <stdint.h>

struct load {
	double share;       /* as of at_ns */
	uint64_t at_ns;     /* 0: never */
	uint64_t recent_ns; /* work since at_ns */
};

/* Notes a piece of work of busy_ns that ends now. */
void load_note(struct load *load, uint64_t busy_ns, uint64_t now_ns);

/* Returns 0 to 1. live_ns: time of a piece that has not ended; 0: none. */
double load_share(const struct load *load, uint64_t live_ns, uint64_t now_ns);

#endif
