/*
 * cpu_rows.h: the CPU's way through the rows of a reduction, which reduce and arg_reduce share. Rows without
 * unit stride are first moved through a tile, up to 64 rows at a time, so that their cache lines are used
 * whole. Threads take rows, or the pieces of few long rows.
 *
 * views[0] is x and views[1] is y, both of rank 4; y has one index along the last axis, which is reduced.
 */
#ifndef KOPS_REDUCE_CPU_ROWS_H
#define KOPS_REDUCE_CPU_ROWS_H

#include "reduce/join.h"

#define REDUCE_SHORT 32 /* elements of a row without use for vectors */

/* What is computed. */
struct reduce_steps {
	struct reduce_found nothing; /* of no elements */
	/* Joins n adjacent elements at x, the first of which is in this column, to what was found before it. */
	void (*join_run)(const struct op_args *args, const void *x, int64_t column, int64_t n,
	                 struct reduce_found *found);
	/* Joins what was found behind it. */
	void (*join)(const struct op_args *args, struct reduce_found *found, const struct reduce_found *behind);
	void (*store)(const struct op_args *args, uint64_t row, const struct reduce_found *found);
	/* NULL, or a faster way for f32 rows of up to REDUCE_SHORT elements, `pitch` elements apart. */
	void (*short_rows)(struct reduce_found *found, const float *x, int64_t pitch, int64_t rows, int64_t n);
};

uint64_t reduce_rows_workspace(const struct op_args *args);
double reduce_rows_ns(const struct op_args *args, double element_ns);
void reduce_rows_run(const struct op_args *args, const struct reduce_steps *steps, const struct launch *launch);

/* Returns the largest or smallest, the sum or product of n adjacent elements (cpu.c). */
double reduce_run(kops_reduction kind, const void *x, kops_dtype dtype, int64_t n);

#endif
