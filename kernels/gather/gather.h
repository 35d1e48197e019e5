/* gather.h: what gather's files share. */
#ifndef KOPS_KERNELS_GATHER_H
#define KOPS_KERNELS_GATHER_H

#include "kernel.h"

#ifdef __CUDACC__
#define GATHER_ANYWHERE static __host__ __device__ __forceinline__
#else
#define GATHER_ANYWHERE static inline
#endif

enum { GATHER_X, GATHER_INDICES, GATHER_Y };

/*
 * Returns the row of x that an element of indices stands for; `rows`: it is out of range. A client may change
 * its indices at any time, so each is read from memory once, and what was read is checked.
 */
GATHER_ANYWHERE uint64_t gather_row(const void *indices, int64_t at, uint64_t rows)
{
	int64_t index = ((const volatile int32_t *)indices)[at];

	return (uint64_t)index < rows ? (uint64_t)index : rows;
}

/* Number of rows of y of checked args. */
static inline uint64_t gather_rows(const struct op_args *args)
{
	return args->views[GATHER_INDICES].shape[0] * args->views[GATHER_INDICES].shape[1];
}

/* Returns as many rows of x as are read, for estimates: which ones depends on the indices. */
static inline struct view gather_taken(const struct op_args *args)
{
	struct view taken = args->views[GATHER_X];
	uint64_t rows = gather_rows(args);

	if (rows < taken.shape[0])
		taken.shape[0] = rows;
	return taken;
}

/* Returns true if the elements of each row are adjacent. */
static inline bool gather_has_unit_rows(const struct view *v)
{
	return v->shape[v->rank - 1] == 1 || v->strides[v->rank - 1] == 1;
}

#endif
