/* affinity.h: the CPUs that the calling thread may run on. */
#ifndef KOPS_AFFINITY_H
#define KOPS_AFFINITY_H

/* At least 1. */
unsigned affinity_count(void);
/* Moves the thread to another one of them, where there is one; later it may come back. */
void affinity_leave(int cpu);

#endif
