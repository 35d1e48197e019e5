/* cpu_pause.h: a pause for loops that poll memory. */
#ifndef KOPS_CPU_PAUSE_H
#define KOPS_CPU_PAUSE_H

/* Leaves the core to its other hyperthread for some 50 ns. */
static inline void cpu_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

#endif
