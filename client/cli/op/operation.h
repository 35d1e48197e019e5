/*
 * operation.h: the ops as the command line knows them: result shape, how to add them to a job, how to check
 * them. One file each; verbs, job files and kops-bench all work on struct step.
 */
#ifndef KOPS_CLI_OP_OPERATION_H
#define KOPS_CLI_OP_OPERATION_H

#include <stdbool.h>
#include <stdint.h>

#include "kops.h"
#include "op/check.h"

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
	unsigned dtypes; /* of the inputs: STEP_DTYPES_… */
	/* Rank and shape of the result from the inputs'. KOPS_E_INVALID with a sentence in why. */
	int (*shape)(const struct step *step, uint32_t *ret_rank, uint64_t *ret_shape, char *why);
	int (*enqueue)(kops_job *job, const struct step *step);
	/* Compares out, in SHARED memory like the inputs. 0 or KOPS_E_NOMEM. */
	int (*check)(const struct step *step, struct check *ret_check);
};

#define STEP_DTYPE(dtype)    (1u << (dtype))
#define STEP_DTYPES_TO_F32   (STEP_DTYPE(KOPS_F32) | STEP_DTYPE(KOPS_F16) | STEP_DTYPE(KOPS_BF16))
#define STEP_DTYPES_FROM_F32 (STEP_DTYPE(KOPS_F32) | STEP_DTYPE(KOPS_F64))
#define STEP_DTYPES_ALL      (STEP_DTYPES_TO_F32 | STEP_DTYPES_FROM_F32)

/* Each in the file of its name. */
extern const struct operation operation_gemm, operation_softmax, operation_transpose, operation_add,
    operation_copy, operation_fma;

const struct operation *operation_by_name(const char *name); /* NULL: there is none */
struct step step_of(const struct operation *op);

/* Shape and dtype of the step's result from its inputs, checking dtypes too. KOPS_E_INVALID. */
int step_shape(const struct step *step, uint32_t *ret_rank, uint64_t ret_shape[KOPS_RANK_MAX], char *why);

/* Bytes of a dense array; KOPS_E_INVALID with a sentence when they are too many. 0 elements have 0 bytes. */
int step_bytes(kops_dtype dtype, uint32_t rank, const uint64_t *shape, uint64_t *ret_bytes, char *why);

/* ---- For the files of the ops ---- */

/* The extent of an axis counted from the last one, 0; of an axis that is not there, 1. */
uint64_t step_extent(const kops_view *v, uint32_t from_end);

/* The shape of a result that has its first input's. */
int step_same_shape(const struct step *step, uint32_t *ret_rank, uint64_t *ret_shape, char *why);

#endif
