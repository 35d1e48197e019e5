/*
 * learned.h: what the jobs on one device have shown about the kernels that `auto` chooses among.
 *
 * Expected times are fitted to one GPU and to ordinary data. A service sends jobs of the same few shapes again
 * and again, so from a shape's ninth job on some of its jobs are trials, one at a time: three of the kernel
 * that runs the shape anyway; up to three of each kernel that is expected to be nearly as fast, or faster; and
 * where one of these was faster, two more of the first. Jobs that are no trials run the fastest kernel so far.
 * After some thirty jobs there are no more trials. Every job is computed once, by a kernel that `auto` may
 * take; a trial is timed by the device's clock.
 *
 * A shape here is what a kernel's speed depends on: op, types, precision, extents, strides, where lines begin,
 * on which kind of memory, and whether the op is alone in its job or one of several that are alike: among
 * others some kernels begin during the op before, and another may be the fastest. Jobs of ops that differ are
 * no trials. They run what jobs of one op showed, if it is clearly faster than the first choice. The table has
 * a fixed size: new shapes take the places of those that were not seen for the longest time. learned_file.h
 * keeps it over restarts.
 *
 * Loop thread only.
 */
#ifndef KOPS_LEARNED_H
#define KOPS_LEARNED_H

#include "plan/planner.h"

struct learned; /* opaque */

#define LEARNED_SHAPES_MAX     1024
#define LEARNED_CANDIDATES_MAX (RIVALS_MAX + 1)

/* Whose kernels they are. */
struct learned_owner {
	const struct kernel_list *(*kernels)(const struct op *op);
	unsigned (*rivals)(const struct planner *planner, const struct op_args *args,
	                   struct rival ret[RIVALS_MAX]);
	const struct planner *planner; /* for rivals() */
};

/* A job that a kernel is judged by. */
struct trial {
	const struct op *op;   /* NULL when this job is not a trial */
	uint64_t shape, round; /* which trials of the shape */
	size_t kernel;
	unsigned n_ops;
};

struct learned *learned_new(const struct learned_owner *owner); /* NULL: out of memory */
void learned_free(struct learned *learned);                     /* NULL allowed */

/* How many ops the job has where, checked, all are of one shape and name no kernel: it can be a trial. Else 0.
 */
unsigned learned_alike(const struct run *run);

/*
 * Which kernel the next op of these checked args should run, as a measurement; NULL: the one it would run
 * anyway. n_alike: learned_alike() of its job. Valid until the next call of another function.
 */
const struct preference *learned_find(struct learned *learned, const struct op_args *args, unsigned n_alike);

/* The device would never take a job of n_alike such ops with the kernel that learned_find() said, and takes it
 * with another: it will not say so again. */
void learned_reject(struct learned *learned, const struct op_args *args, unsigned n_alike);

/*
 * A job whose ops are alike has been planned and is queued. True: it is a trial, is to be timed by the device's
 * clock, and ends with learned_end() or learned_cancel(). *ret_settled: there are no more trials of its shape,
 * and the next such job runs the same kernel.
 */
bool learned_begin(struct learned *learned, const struct run *run, struct trial *ret_trial, bool *ret_settled);

/* took_us: of the job, with its transfers, for kernels differ in what they have moved beforehand; 0 where the
 * job failed: then a kernel that is not the first choice has no further trial. */
void learned_end(struct learned *learned, const struct trial *trial, double took_us);

/* It never ran. */
void learned_cancel(struct learned *learned, const struct trial *trial);

/* ---- What is kept over restarts ---- */

struct learned_candidate {
	size_t kernel;
	double expected_us, least_us; /* least_us: 0 until a trial has shown it */
	unsigned trials;              /* begun */
};

struct learned_shape {
	const struct op *op;
	uint64_t hash;
	unsigned n;                                                  /* of the candidates, 2 or more */
	struct learned_candidate candidates[LEARNED_CANDIDATES_MAX]; /* [0]: the first choice */
};

/* Goes up with each thing that a trial showed. */
uint64_t learned_changes(const struct learned *learned);

/* All shapes that have had trials, those last used first: at most LEARNED_SHAPES_MAX, in memory that the caller
 * frees. *ret_shapes: NULL where there are none. KOPS_E_NOMEM. */
int learned_export(const struct learned *learned, struct learned_shape **ret_shapes, size_t *ret_n);

/* Takes one of them again, unless its place is taken. False: it makes no sense. */
bool learned_import(struct learned *learned, const struct learned_shape *shape);

#endif
