/*
 * spin.h: looking for work again and again, instead of sleeping.
 *
 * Linux likes to put a thread that was woken on the CPU of the one that woke it. If that one never sleeps, the
 * other waits for a time slice of some milliseconds. So who spins gives way to others now and then, which costs
 * half a microsecond where there are none.
 */
#ifndef KOPS_SPIN_H
#define KOPS_SPIN_H

#include <sched.h>

/* Who looks gives way after so many looks at memory, or rounds of a loop, which make system calls: some 10 µs.
 */
#define SPIN_LOOKS  64
#define SPIN_ROUNDS 8

struct spin {
	unsigned looks;
};

/* After a look that found nothing; every so many of them it gives way. */
static inline void spin_on(struct spin *spin, unsigned give_way)
{
	if (++spin->looks >= give_way) {
		spin->looks = 0;
		sched_yield();
	}
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

#endif
