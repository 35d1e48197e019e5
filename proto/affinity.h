/* affinity.h: the CPUs that the calling thread may run on. */
#ifndef KOPS_AFFINITY_H
#define KOPS_AFFINITY_H

#include <stdbool.h>

/* At least 1. */
unsigned affinity_count(void);
/* Moves the thread to another one of them; later it may come back. False: there is none. */
bool affinity_leave(int cpu);

#endif
