/*
 * learned.h: what jobs on one device showed about the kernels that `auto` chooses from. Loop thread only.
 *
 * Expected times are fitted to one GPU and to ordinary data, and a service repeats jobs of a few shapes. So
 * from a shape's ninth job on, some of its jobs are trials, one at a time. First come three of the kernel that
 * runs the shape anyway. Then come up to three of each kernel that should be nearly as fast, or faster. If one
 * of these was faster, two more of the first follow. Other jobs run the fastest kernel so far. After some
 * thirty jobs the trials end.
 *
 * What a kernel takes may depend on the data, and these may change. So later jobs are compared with the trials.
 * When some in a row took clearly longer, the trials begin anew, and once more after more jobs, because the
 * data may have changed back. Each time it takes twice as many jobs until the next.
 *
 * Every job is computed once, by a kernel that `auto` may take. The device's clock times a trial.
 *
 * A shape is all that a kernel's speed depends on: op, types, precision, extents, strides, alignment of lines,
 * kind of memory, and whether the op is alone in its job or one of several equal ones. Some kernels begin
 * during the previous op, so another kernel may be the fastest among several. Jobs of different ops are no
 * trials. They run the kernel that jobs of one op showed, if it is clearly faster than the first choice.
 *
 * The table has a fixed size: new shapes replace the least recently used ones. learned_file.h keeps it over
 * restarts.
 */
#ifndef KOPS_LEARNED_H
#define KOPS_LEARNED_H

#include "plan/planner.h"

struct learned; /* opaque */

#define LEARNED_SHAPES_MAX     1024
#define LEARNED_CANDIDATES_MAX (RIVALS_MAX + 1)

/* The source of the kernels. */
struct learned_owner {
	const struct kernel_list *(*kernels)(const struct op *op);
	unsigned (*rivals)(const struct planner *planner, const struct op_args *args,
	                   struct rival ret[RIVALS_MAX]);
	const struct planner *planner; /* for rivals() */
};

/* A job that measures a kernel. */
struct trial {
	const struct op *op;   /* NULL: the job is not a trial */
	uint64_t shape, round; /* which trials of the shape */
	size_t kernel;
	unsigned n_ops;
	double usual_us; /* of a job that is none: what its ops took on trial by this kernel; 0: unknown */
};

struct learned *learned_new(const struct learned_owner *owner); /* NULL: out of memory */
void learned_free(struct learned *learned);                     /* NULL allowed */

/* Returns the number of ops if the job can be a trial: all of its checked ops have one shape, and none names a
 * kernel. Else 0. */
unsigned learned_alike(const struct run *run);

/*
 * The kernel that the next op with these checked args should run, because its trial is due or because it was
 * the fastest; NULL: the first choice. n_alike: learned_alike() of its job. Valid until the next call of
 * another function.
 */
const struct preference *learned_find(struct learned *learned, const struct op_args *args, unsigned n_alike);

/* Call it if the device can never run n_alike such ops with the kernel of learned_find(). That kernel is not
 * returned again for them. */
void learned_reject(struct learned *learned, const struct op_args *args, unsigned n_alike);

/*
 * Call it when a job of equal ops is planned and queued. Returns true if it is a trial: it must be timed by the
 * device's clock and end with learned_end() or learned_cancel(). *ret_settled: the trials of its shape are
 * over, and the next such job runs the same kernel.
 */
bool learned_begin(struct learned *learned, const struct run *run, struct trial *ret_trial, bool *ret_settled);

/* Ends a trial. took_us includes the job's transfers, because kernels differ in what they move beforehand. 0:
 * the job failed; then a kernel other than the first choice has no more trials. */
void learned_end(struct learned *learned, const struct trial *trial, double took_us);

/* Whether a job took clearly longer than usual. It must have had the device for itself. */
static inline bool learned_is_slow(double usual_us, double took_us)
{
	return took_us > 1.4 * usual_us + 25;
}

/*
 * Notes n jobs of one settled shape in a row, run being the last; is_slow: that one was, the others were as
 * fast as usual. Returns true if the trials of the shape begin anew with the next job.
 */
bool learned_note(struct learned *learned, const struct run *run, bool is_slow, unsigned n);

/* Ends a trial that never ran. */
void learned_cancel(struct learned *learned, const struct trial *trial);

/* ---- The table, to keep over restarts ---- */

struct learned_candidate {
	size_t kernel;
	double expected_us, least_us; /* least_us: the shortest trial; 0: none yet */
	unsigned trials;              /* begun */
};

struct learned_shape {
	const struct op *op;
	uint64_t hash;
	unsigned n;                                                  /* candidates, at least 2 */
	struct learned_candidate candidates[LEARNED_CANDIDATES_MAX]; /* [0]: the first choice */
};

/* Increases with each result of a trial. */
uint64_t learned_changes(const struct learned *learned);

/* Returns all shapes that had trials, the most recently used first, at most LEARNED_SHAPES_MAX. The caller
 * frees them. *ret_shapes: NULL if there are none. KOPS_E_NOMEM. */
int learned_export(const struct learned *learned, struct learned_shape **ret_shapes, size_t *ret_n);

/* Adds an exported shape, unless its entry is taken. Returns false if it is invalid. */
bool learned_import(struct learned *learned, const struct learned_shape *shape);

#endif
