/* found.h: what the kernel `f16x3` finds out about its operands. */
#ifndef KOPS_KERNELS_ATTENTION_F16X3_FOUND_H
#define KOPS_KERNELS_ATTENTION_F16X3_FOUND_H

#include <stdint.h>

/* Found while they are split. Begins as zeros, aligned to 16 bytes. */
struct split_found {
	uint32_t unfit;     /* NaN, Inf, numbers too large, columns of v with many small ones */
	uint32_t k_largest; /* bits of the largest magnitude in k */
	uint32_t q_longest; /* bits of the largest sum of magnitudes of a query, times the factor of scores */
	uint32_t taken;     /* tiles that blocks took after their first */
};

#endif
