/* kernels.h: the steps of cholesky on GPUs. */
#ifndef KOPS_CHOLESKY_KERNELS_H
#define KOPS_CHOLESKY_KERNELS_H

#include "cholesky/operands.h"
#include "linalg/batch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The largest order that one block of threads factors in shared memory. */
#define CHOLESKY_SMALL_MAX(dtype) ((dtype) == KOPS_C128 ? 48u : 64u)

CUDA_LAUNCH(cholesky_small);
CUDA_LAUNCH(cholesky_blocked);
uint64_t cholesky_blocked_workspace(const struct op_args *args);

/* Whether that one works in the factor, and not in the workspace. */
bool cholesky_is_direct(const struct op_args *args);

/* Enqueues the same for a block of larger matrices, in place. A pivot that is not positive becomes NaN; the
 * block is not meaningful then. (small.cu) */
int cholesky_factor_block(const struct linalg_batch *m, const struct launch *launch);

/*
 * Enqueues what comes behind the last part: info for each matrix, by the first NaN on the diagonal of w, into
 * `found` and into the operand; then what the factor holds. Behind other parts, copies the triangle of w. w may
 * be the factor. (finish.cu)
 */
int cholesky_finish(const struct op_args *args, const struct linalg_batch *w, uint64_t outer, int32_t *found,
                    const struct launch *launch);

#ifdef __cplusplus
}
#endif

#endif
