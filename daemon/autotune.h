/*
 * autotune.h: what the jobs on one device show about the rows that `auto` chooses among.
 *
 * Expected times are fitted to one GPU and to ordinary data, measurements of a tuning table to a class of
 * shapes. A service sends jobs of the same few shapes again and again: so from a shape's ninth job on, three
 * are timed; and a row that is expected to be nearly as fast as these were, or faster, runs up to three as
 * well. The fastest then has the rest of them. Every job is computed once, by a row that `auto` may take.
 * Shapes that are seen a few times only cost nothing.
 *
 * A shape here is all that a row's speed depends on: op, types, precision, extents, strides, where lines begin,
 * and on which kind of memory; for jobs of one op. The table has a fixed size: new shapes take the places of
 * those that were not seen for the longest time. Nothing of it is kept over a restart or a reload.
 *
 * Loop thread only.
 */
#ifndef KOPS_AUTOTUNE_H
#define KOPS_AUTOTUNE_H

#include "backend.h"

struct autotune; /* opaque */

/* Whose rows they are. */
struct autotune_owner {
	const struct kernel_list *(*kernels)(const struct op *op);
	unsigned (*rivals)(const void *device, const struct op_args *args, struct rival ret[RIVALS_MAX]);
	const void *device; /* for rivals() */
};

/* A job that a row is judged by. Zeros: this one is not. */
struct trial {
	uint64_t shape;
	size_t row;
};

struct autotune *autotune_new(const struct autotune_owner *owner); /* NULL: out of memory */
void autotune_free(struct autotune *autotune);                     /* NULL allowed */

/*
 * Which row the next op of these checked args should run, as a measurement; NULL: the one it would run anyway.
 * may_try: its job can be a trial. Valid until the next autotune_begin().
 */
const struct tuned *autotune_find(struct autotune *autotune, const struct op_args *args, bool may_try);

/*
 * A job of this one op, which names no row, has been planned and is going to run. True: it is a trial, is to be
 * timed by the device's clock, and ends with autotune_end().
 */
bool autotune_begin(struct autotune *autotune, const struct run_op *op, struct trial *ret_trial);

/* compute_us: 0 where the job did not get through. */
void autotune_end(struct autotune *autotune, const struct trial *trial, double compute_us);

#endif
