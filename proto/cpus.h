/* cpus.h: how many CPUs this process can keep busy, to decide how many threads to start. */
#ifndef KOPS_CPUS_H
#define KOPS_CPUS_H

/*
 * The number of CPUs that the calling thread may run on, or fewer if a cgroup above this process has a quota of
 * CPU time: 150 ms in each 100 ms count as 2. At least 1. Reads files, in about 0.1 ms.
 */
unsigned cpus_count(void);

/* ---- For tests ---- */

/* The quota alone, for a host whose /proc and /sys are below root; UINT_MAX: there is no quota. */
unsigned cpus_of_quota(const char *root);

#endif
