/* split.h: the keys of a query in parts, as CUDA kernels divide them among warps and blocks. */
#ifndef KOPS_KERNELS_ATTENTION_SPLIT_H
#define KOPS_KERNELS_ATTENTION_SPLIT_H

#include "attention/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Returns the workspace for what `parts` parts of each query find (join.cuh): sums of all columns, the largest
 * score and the sum of exponentials. 0: there is nothing to join. of_element: bytes.
 */
static inline uint64_t attention_found_bytes(const struct op_args *args, unsigned parts, uint64_t of_element)
{
	const struct view *o = &args->views[ATTENTION_O];
	uint64_t bytes = (o->shape[3] + 2) * of_element * parts;

	if (parts == 1 && !args->params.plain.flags[ATTENTION_IS_PART])
		return 0;
	for (unsigned d = 0; d < 3; d++)
		if (__builtin_mul_overflow(bytes, o->shape[d], &bytes))
			return UINT64_MAX;
	return bytes;
}

/* Of the kernel `rows`. */
unsigned attention_rows_parts(const struct op_args *args);
uint64_t attention_rows_workspace(const struct op_args *args);

#ifdef __cplusplus
}
#endif

#endif
