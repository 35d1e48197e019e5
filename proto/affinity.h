/* affinity.h: the CPUs that the calling thread may use. */
#ifndef KOPS_AFFINITY_H
#define KOPS_AFFINITY_H

#include <stdbool.h>

/* The number of these CPUs; at least 1. */
unsigned affinity_count(void);
/* Moves the thread to another of these CPUs; it may return later. Returns false if there is none. */
bool affinity_leave(int cpu);

#endif
