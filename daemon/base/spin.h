/* spin.h: polling for work instead of sleeping. */
#ifndef KOPS_SPIN_H
#define KOPS_SPIN_H

#include <sched.h>
#include <stdbool.h>

#include "cpu_pause.h"

/* A thread that polls yields after this many looks at memory, or rounds of the loop, which make system calls:
 * some 10 µs. */
#define SPIN_LOOKS  64
#define SPIN_ROUNDS 4

struct spin {
	unsigned looks;
};

/*
 * Call it after a look that found nothing. At the given interval it yields, and returns true. Linux tends to
 * put a woken thread on the CPU of the thread that woke it. If that one never sleeps, the other waits for the
 * end of its time slice. Yielding costs half a microsecond if nobody waits.
 */
static inline bool spin_on(struct spin *spin, unsigned give_way)
{
	bool gives_way = ++spin->looks >= give_way;

	if (gives_way) {
		spin->looks = 0;
		sched_yield();
	}
	cpu_pause();
	return gives_way;
}

#endif
