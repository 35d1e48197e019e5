/*
 * autotune.h: what the jobs on one device show about the kernels that `auto` chooses among.
 *
 * Expected times are fitted to one GPU and to ordinary data, measurements of a tuning table to a class of
 * shapes. A service sends jobs of the same few shapes again and again: so from a shape's ninth job on, some are
 * trials, one at a time: three of the kernel that runs the shape anyway; up to three of each that is expected
 * to be nearly as fast as it was, or faster; and where one of these was faster, two more of the first. Jobs
 * that are no trials run the fastest so far, and after some thirty there are no more trials. Every job is
 * computed once, by a kernel that `auto` may take, and timed by the device's clock where it is a trial.
 *
 * A shape here is what a kernel's speed depends on: op, types, precision, extents, strides, where lines begin,
 * on which kind of memory, and whether the op is alone in its job or one of several that are alike: among
 * others some kernels begin during the op before, and another may be the fastest. Jobs of ops that differ are
 * no trials. They run what jobs of one op showed, if it is clearly faster than the first choice. The table has
 * a fixed size: new shapes take the places of those that were not seen for the longest time. Nothing of it is
 * kept over a restart or a reload.
 *
 * Loop thread only.
 */
#ifndef KOPS_AUTOTUNE_H
#define KOPS_AUTOTUNE_H

#include "device/backend.h"

struct autotune; /* opaque */
struct device;

/* Whose kernels they are. */
struct autotune_owner {
	const struct kernel_list *(*kernels)(const struct op *op);
	unsigned (*rivals)(const struct device *device, const struct op_args *args,
	                   struct rival ret[RIVALS_MAX]);
	const struct device *device; /* for rivals() */
};

/* A job that a kernel is judged by. Zeros: this one is not. */
struct trial {
	const struct op *op;
	uint64_t shape, round; /* which trials of the shape */
	size_t kernel;
	unsigned n_ops;
};

struct autotune *autotune_new(const struct autotune_owner *owner); /* NULL: out of memory */
void autotune_free(struct autotune *autotune);                     /* NULL allowed */

/* How many ops the job has where, checked, all are of one shape and name no kernel: it can be a trial. Else 0.
 */
unsigned autotune_alike(const struct run *run);

/*
 * Which kernel the next op of these checked args should run, as a measurement; NULL: the one it would run
 * anyway. n_alike: autotune_alike() of its job. Valid until the next call of another function.
 */
const struct tuned *autotune_find(struct autotune *autotune, const struct op_args *args, unsigned n_alike);

/* The device would never take a job of n_alike such ops with the kernel that autotune_find() said, and takes it
 * with another: it will not say so again. */
void autotune_reject(struct autotune *autotune, const struct op_args *args, unsigned n_alike);

/*
 * A job whose ops are alike has been planned and is queued. True: it is a trial, is to be timed by the device's
 * clock, and ends with autotune_end() or autotune_cancel().
 */
bool autotune_begin(struct autotune *autotune, const struct run *run, struct trial *ret_trial);

/* took_us: of the job, with its transfers, for kernels differ in what they have moved beforehand; 0 where the
 * job failed: then a kernel that is not the first choice has no further trial. */
void autotune_end(struct autotune *autotune, const struct trial *trial, double took_us);

/* It never ran. */
void autotune_cancel(struct autotune *autotune, const struct trial *trial);

#endif
