/* kernels.h: the steps of lu on GPUs. */
#ifndef KOPS_LU_KERNELS_H
#define KOPS_LU_KERNELS_H

#include "linalg/batch.h"
#include "lu/operands.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most rows and columns that one block of threads factors in shared memory. */
#define LU_SMALL_MAX(dtype) ((dtype) == KOPS_C128 ? 48u : 64u)

/* Columns of a panel. */
#define LU_PANEL 16u

CUDA_LAUNCH(lu_small);
CUDA_LAUNCH(lu_blocked);
uint64_t lu_blocked_workspace(const struct op_args *args);

/* Where exchanges of each matrix are: row i with row pivots[i], counted from the matrix's own first row. */
struct lu_exchanges {
	int32_t *pivots; /* of the first matrix */
	uint64_t apart;  /* from matrix to matrix */
	uint64_t begin, n;
};

/* Enqueue the factorisation of a panel of at most LU_PANEL columns, whose first row is row x->begin of its
 * matrix, and the exchanges of rows of m, whose first row is that too. (panel.cu) */
int lu_factor_panel(const struct linalg_batch *panel, const struct lu_exchanges *x,
                    const struct launch *launch);
int lu_exchange_rows(const struct linalg_batch *m, const struct lu_exchanges *x, const struct launch *launch);

/* Enqueues what comes behind a part: its pivots, and behind the last one info. (panel.cu) */
int lu_finish(const struct op_args *args, const struct linalg_batch *w, uint64_t outer,
              const struct lu_exchanges *x, const struct launch *launch);

#ifdef __cplusplus
}
#endif

#endif
