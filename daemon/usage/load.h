/*
 * load.h: the share of the last second or so in which a device had work: an average whose weights fall by e
 * each second. Of constant size. A short piece of work costs an addition: only every STEP or so all is weighed
 * anew.
 */
#ifndef KOPS_LOAD_H
#define KOPS_LOAD_H

#include <stdint.h>

struct load {
	double share;       /* as of at_ns */
	uint64_t at_ns;     /* 0: never */
	uint64_t recent_ns; /* work since then */
};

/* A piece of work of busy_ns ends now. */
void load_note(struct load *load, uint64_t busy_ns, uint64_t now_ns);

/* 0 to 1. live_ns: of a piece that has not ended; 0: there is none. */
double load_share(const struct load *load, uint64_t live_ns, uint64_t now_ns);

#endif
