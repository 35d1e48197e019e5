/*
 * report.h: counts what happened to calls, for KOPS_BLAS_VERBOSE.
 *
 * Each process prints its lines when it ends. Children of fork() may end without printing: multiprocessing's
 * workers call _exit() or are killed. So a process and all its descendants by fork() count in shared memory,
 * and a process that ends also prints the lines of those that could not.
 *
 *     FREE --report_child()--> COUNTING --its end, or another's after its end--> PRINTING --> FREE
 */
#ifndef KOPS_LIBBLAS_REPORT_H
#define KOPS_LIBBLAS_REPORT_H

#include <stdint.h>

/* Where a call went; all but the first went to the next BLAS. */
enum outcome {
	OUTCOME_KOPSD,
	OUTCOME_SMALL,
	OUTCOME_UNUSUAL, /* an invalid or empty call, or alpha = 0 */
	OUTCOME_WIDE,    /* 64-bit integers under a name for 32-bit ones */
	OUTCOME_SLOWER,  /* kopsd takes longer, as measured */
	OUTCOME_NO_GPU,
	OUTCOME_AWAY,     /* kopsd cannot be reached */
	OUTCOME_TAKEN,    /* no handle is free: as many threads as may wait for kopsd do so */
	OUTCOME_FAILED,   /* kopsd refused or lost the job, or took too long */
	OUTCOME_SINGULAR, /* a matrix is singular or not positive definite */
	OUTCOMES
};

/* Returns the outcome as text for people. */
const char *report_word(enum outcome outcome);

/*
 * Returns the number under which a function's calls are counted; children use the same. One thread at a time.
 * The name must stay valid for ever.
 */
uint32_t report_add(const char *name);

/* copied, used: bytes that were copied for kopsd, and that it used where they were. */
void report_count(uint32_t number, enum outcome outcome, uint64_t ns, uint64_t copied, uint64_t used);

/* Must be called in a child of fork() before it counts. */
void report_child(void);

#endif
