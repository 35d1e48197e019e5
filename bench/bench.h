/*
 * bench.h: what the parts of kops-bench share.
 *
 *   verb_op.c, op.c   one op over shapes, modes and kernels
 *   plan.c            what to measure; cases.c: shapes, tables, kernels
 *   job.c             the device, and one job on it
 *   operands.c        memory for operands, and random content
 *   measure.c         one shape and kernel: runs, samples, the check
 *   accuracy.c        blocks of a result against float64
 *   ceiling.c         rates of memory and cache; the FMA rate is given
 *   ipc.c             round trips, small jobs, rates
 *   path.c            what jobs lose on their way
 *   beside/           how long a small job takes beside a heavy user
 *   choice/           all kernels on one shape, and what kopsd's choice loses
 *   report/           results and derived figures, as text, JSON and CSV
 *
 * Beside the program: plot draws what --csv or --json wrote; record, with recording/ and peers/, measures what
 * recorded/ keeps, and tables writes it into the documents.
 */
#ifndef KOPS_BENCH_H
#define KOPS_BENCH_H

#include "cli.h"
#include "op/operation.h"
#include "report/table.h"

/* Random numbers to fill operands with, made once; see operands.h. */
struct bench_content {
	kops_buffer *shared, *used; /* used: the source of operands, on the device or the same */
	kops_dtype dtype;
	uint64_t elements;
};

/* The state of `kops-bench OP`. Functions that take it return 0, or KOPS_E_* with a sentence in why. */
struct bench {
	struct cli *cli;
	kops_info *info;
	const kops_device_info *device; /* with "gpu*", the first of them */
	const char *jobs_on;            /* what jobs name: its name, or "gpu*" */
	char kind[32];                  /* of the device: "gpu", "cpu" */
	bool host;                      /* operands in SHARED memory */
	bool again;                     /* samples are runs of one job */
	kops_dtype dtype;
	unsigned input; /* enum bench_input */
	uint64_t seed, reps, warmup;
	uint64_t launches; /* per sample; 0: as many as last a millisecond */
	size_t next_set;   /* the next of the operands' sets, which are used in turn */
	struct bench_content content;
	char why[CLI_WHY_BYTES];
};

/* ---- job.c ---- */

/* For commands that use bench_open(), which has that default. */
#define OPTION_TIMEOUT_BENCH                                                                                   \
	OPTION("timeout", 0, "TIME", time, timeout_ms,                                                         \
	       "give up on a job after this time: 2 (seconds), 500ms, 1min; default 10min")

/* Connects, asks for facts and finds the device. Returns an exit code. */
int bench_open(struct bench *b);
void bench_close(struct bench *b); /* does nothing after a failed bench_open() */

/*
 * Runs the steps as one job, and tries again while the daemon is busy. Waits long enough for slow kernels. Free
 * *ret_job, which has the receipt, with kops_job_free(). *ret_wall_us may be NULL.
 */
int bench_job(struct bench *b, const struct step *steps, size_t n, kops_job **ret_job, double *ret_wall_us);

/* Runs a job once more, as patiently. */
int bench_job_again(struct bench *b, kops_job *job, double *ret_wall_us);

/* Runs the steps, in as many jobs as it takes. */
int bench_jobs(struct bench *b, const struct step *steps, size_t n);

/* Sleeps for as long as kopsd asked a job to, which it refused with KOPS_E_BUSY. */
void bench_back_off(const kops_job *job);

/* Allocates memory on the bench's device, or SHARED. */
int bench_alloc(struct bench *b, uint64_t bytes, bool shared, kops_buffer **ret_buffer);

/* Sleeps that long, whatever signals come. */
void bench_sleep_us(uint64_t us);

/* Returns true if the status means that this device or kernel does not compute this op, but others may. */
bool bench_is_refusal(int status);

/* ---- accuracy.c ---- */

/*
 * Compares blocks of the step's output (corners and random places) with float64. Operands are in any memory.
 * *ret_check: of all blocks, with places in the whole output.
 */
int bench_check(struct bench *b, const struct step *step, struct check *ret_check);

/* ---- ceiling.c ---- */

/* Measures memory and cache, and takes --fma-rate. Ceilings without a kernel on the device stay NaN. */
int bench_ceilings(struct bench *b, struct bench_head *head);

#endif
