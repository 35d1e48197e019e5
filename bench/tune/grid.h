/*
 * grid.h: what `kops-bench tune` measures, the most valuable first: shapes whose extents are powers of
 * two, of each op, type and precision; first a coarse grid, then its gaps, other layouts and lines that are not
 * aligned.
 */
#ifndef KOPS_BENCH_TUNE_GRID_H
#define KOPS_BENCH_TUNE_GRID_H

#include "cases.h"

#define TUNE_SHAPES_MAX 729 /* of one sweep: gemm's grid has nine points in each of three directions */

/* Shapes that differ in their extents only. */
struct sweep {
	const struct operation *op;
	kops_dtype dtype;
	kops_precision precision;
	bool fine;      /* the points between those of the coarse grid */
	bool unaligned; /* an element less in each direction: lines begin anywhere */
	bool transposed[STEP_INPUTS_MAX];
};

/* Whether the op has something to tune. */
bool tune_takes(const struct operation *op);

/* The index-th sweep over these ops, in the order of their worth. False: there are no more. */
bool tune_sweep(const struct operation *const *ops, size_t n_ops, size_t index, struct sweep *ret);

/* "gemm f32 ieee NT unaligned": of a sweep. */
const char *tune_sweep_name(const struct sweep *sweep, char text[64]);

/* The sweep's shapes, from the least to the most work. How many. */
size_t tune_shapes(const struct sweep *sweep, struct bench_shape ret[TUNE_SHAPES_MAX]);

/* The sweep's op on a shape. Errors as bench_shape_step(). */
int tune_step(const struct sweep *sweep, const struct bench_shape *shape, struct step *ret_step, char *why);

#endif
