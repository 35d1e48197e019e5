/*
 * bench.h: what the parts of kops-bench share.
 *
 *   verb_op.c, op.c   one op: goes through shapes, modes and kernels
 *   plan.c            what that is to do; cases.c: shapes, tables, kernels
 *   job.c             the device, and one job on it
 *   operands.c        memory for operands, and random content
 *   measure.c         one shape and kernel: runs, samples, the check
 *   accuracy.c        blocks of a result against float64
 *   ceiling.c         what memory and cache can do at most; the FMA rate is given
 *   ipc.c             round trips, small jobs, rates
 *   path.c            what jobs lose on their way
 *   choice/           all kernels on one shape, and what kopsd's choice of them loses
 *   report/           what was found, and the figures that follow; as text, JSON and CSV
 *
 * Beside the program: plot draws what --csv or --json wrote; record, with recording/ and peers/, measures what
 * recorded/ keeps, and tables writes it into the documents.
 */
#ifndef KOPS_BENCH_H
#define KOPS_BENCH_H

#include "cli.h"
#include "op/operation.h"
#include "report/table.h"

/* Random numbers that operands are filled with, made once; see operands.h. */
struct bench_content {
	kops_buffer *shared, *used; /* used: what operands are copied from, on the device or the same */
	kops_dtype dtype;
	uint64_t elements;
};

/* What all parts of `kops-bench OP` work with. Functions that take it return 0 or KOPS_E_* with a sentence in
 * why.
 */
struct bench {
	struct cli *cli;
	kops_info *info;
	const kops_device_info *device;
	char kind[32]; /* of the device: "gpu", "cpu" */
	bool host;     /* operands in SHARED memory */
	kops_dtype dtype;
	uint64_t seed, reps, warmup;
	uint64_t launches; /* in a sample; 0: as many as last a millisecond */
	size_t next_set;   /* of operands whose sets are used in turn */
	struct bench_content content;
	char why[CLI_WHY_BYTES];
};

/* ---- job.c ---- */

/* Connects, asks what there is and finds the device. An exit code. */
int bench_open(struct bench *b);
void bench_close(struct bench *b); /* allowed on one that failed to open */

/*
 * Runs the steps as one job, patiently: a busy daemon is asked again, and there is time for slow kernels.
 * *ret_job has the receipt; free it with kops_job_free(). *ret_wall_us may be NULL.
 */
int bench_job(struct bench *b, const struct step *steps, size_t n, kops_job **ret_job, double *ret_wall_us);

/* Runs the steps, in as many jobs as it takes. */
int bench_jobs(struct bench *b, const struct step *steps, size_t n);

/* Memory on the bench's device, or SHARED. */
int bench_alloc(struct bench *b, uint64_t bytes, bool shared, kops_buffer **ret_buffer);

/* Whether the status means that this device or kernel does not do this op, and others may. */
bool bench_is_refusal(int status);

/* ---- accuracy.c ---- */

/*
 * Compares blocks of the step's output (corners and random places) with float64, its operands being rank 2 and
 * anywhere. *ret_check: of all blocks, places counted in the whole output.
 */
int bench_check(struct bench *b, const struct step *step, struct check *ret_check);

/* ---- ceiling.c ---- */

/* Measures memory and cache, and takes --fma-rate. What the device has no kernel for stays NaN. */
int bench_ceilings(struct bench *b, struct bench_head *head);

#endif
