/* kernels.h: triangular_solve on GPUs. */
#ifndef KOPS_TRIANGULAR_SOLVE_KERNELS_H
#define KOPS_TRIANGULAR_SOLVE_KERNELS_H

#include "common/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

CUDA_LAUNCH(triangular_solve_blocked);
uint64_t triangular_solve_workspace(const struct op_args *args);

/* Sets the views of args to what its part reads and writes: rows of a and of b, and the rows of x up to its
 * own. */
void triangular_solve_touched(const struct op_args *args, struct op_args *ret);

#ifdef __cplusplus
}
#endif

#endif
