/* spin.h: looking for work again and again, instead of sleeping. */
#ifndef KOPS_SPIN_H
#define KOPS_SPIN_H

#include <sched.h>
#include <stdbool.h>

#include "cpu_pause.h"

/* Who looks gives way after so many looks at memory, or rounds of a loop, which make system calls: some 10 µs.
 */
#define SPIN_LOOKS  64
#define SPIN_ROUNDS 4

struct spin {
	unsigned looks;
};

/*
 * After a look that found nothing; every so many of them it gives way, and returns true. Linux likes to put a
 * thread that was woken on the CPU of the one that woke it. If that one never sleeps, the other waits for the
 * end of its slice. It costs half a microsecond where nobody waits.
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
