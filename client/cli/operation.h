/*
 * operation.h: the ops as kops-client knows them: result shape, how to add them to a job, how to check them.
 * One row each; verbs, job files and bench all work on struct step.
 */
#ifndef KOPS_CLI_OPERATION_H
#define KOPS_CLI_OPERATION_H

#include <stdbool.h>
#include <stdint.h>

#include "check.h"
#include "kops.h"

#define STEP_INPUTS_MAX 2

/* One op with its operands. Zero but for op, alpha and scale is a good start: step_of(). */
struct step {
	const struct operation *op;
	kops_view in[STEP_INPUTS_MAX], out;
	double alpha, beta; /* gemm, fma */
	kops_precision precision;
	double scale; /* softmax */
	bool log;
	uint32_t steps;             /* fma */
	const char *kernel;         /* NULL: auto */
	const struct elements *old; /* for the check: what out held before, when beta is not 0 */
};

struct operation {
	const char *name;
	unsigned n_inputs;
	unsigned dtypes; /* bit d: the kops_dtype d */
	/* Rank and shape of the result from the inputs'. KOPS_E_INVALID with a sentence in why. */
	int (*shape)(const struct step *step, uint32_t *ret_rank, uint64_t *ret_shape, char *why);
	int (*enqueue)(kops_job *job, const struct step *step);
	/* Compares out, in SHARED memory like the inputs. 0 or KOPS_E_NOMEM. */
	int (*check)(const struct step *step, struct check *ret_check);
};

const struct operation *operation_by_name(const char *name); /* NULL: there is none */
struct step step_of(const struct operation *op);

/* Shape and dtype of the step's result from its inputs, checking dtypes too. KOPS_E_INVALID. */
int step_shape(const struct step *step, uint32_t *ret_rank, uint64_t ret_shape[KOPS_RANK_MAX], char *why);

/* Bytes of a dense array; KOPS_E_INVALID with a sentence when they are too many. 0 elements have 0 bytes. */
int step_bytes(kops_dtype dtype, uint32_t rank, const uint64_t *shape, uint64_t *ret_bytes, char *why);

#endif
