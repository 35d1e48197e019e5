/* cpu_share.h: how kopsd's threads share CPUs with other programs, without delaying their own. */
#ifndef KOPS_CPU_SHARE_H
#define KOPS_CPU_SHARE_H

#include <sched.h>

/* ---- Short slices ---- */

#define SLICE_NS 100000u /* the least that Linux grants */

/*
 * Linux lets a thread keep its CPU for some milliseconds while others wait. The threads that stand between a
 * client and its answer need it for microseconds. So they ask for short slices: whoever asks for little gets it
 * soon, and no more in all. For the calling thread, and those that it starts from now on. Without effect before
 * Linux 6.12, and where it is forbidden.
 */
void ask_for_short_slices(void);

/* ---- Looking for work again and again, instead of sleeping ---- */

/* Who looks gives way after so many looks at memory, or rounds of a loop, which make system calls: some 10 µs.
 */
#define SPIN_LOOKS  64
#define SPIN_ROUNDS 8

struct spin {
	unsigned looks;
};

/*
 * After a look that found nothing; every so many of them it gives way. Linux likes to put a thread that was
 * woken on the CPU of the one that woke it. If that one never sleeps, the other waits for the end of its slice.
 * It costs half a microsecond where nobody waits.
 */
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
