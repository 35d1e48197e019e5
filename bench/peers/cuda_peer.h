/* cuda_peer.h: what programs that call cuBLAS themselves share. */
#ifndef KOPS_BENCH_CUDA_PEER_H
#define KOPS_BENCH_CUDA_PEER_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CHECK(call)                                                                                            \
	do {                                                                                                   \
		int failed = (int)(call);                                                                      \
		if (failed) {                                                                                  \
			fprintf(stderr, "%s: %s failed with %d\n", program_invocation_short_name, #call,       \
			        failed);                                                                       \
			exit(1);                                                                               \
		}                                                                                              \
	} while (0)

static inline double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Orders doubles, for qsort(). */
static inline int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

#endif
