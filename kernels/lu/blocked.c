/*
 * blocked.c: LU of any size on GPUs. Columns are halved until a panel is left, which panel.cu factors (S.
 * Toledo, Locality of Reference in LU Decomposition with Partial Pivoting). For the other half rows are
 * exchanged, its upper rows solved for, and products subtracted from the rest, by cuBLAS. All of it is enqueued
 * at once: pivots stay on the GPU.
 *
 * The work is done in lu, if its rows or columns are runs of elements, else in the workspace.
 */
#include "linalg/counts.h"
#include "lu/kernels.h"

enum { A = LU_A, LU = LU_LU };

#define ALIGNED 256 /* bytes */

static uint64_t aligned(uint64_t bytes)
{
	return bytes > UINT64_MAX - ALIGNED ? UINT64_MAX : (bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
}

static uint64_t pivot_bytes(const struct op_args *args)
{
	return aligned(args->views[LU].shape[1] * lu_pivots(args) * sizeof(int32_t));
}

uint64_t lu_blocked_workspace(const struct op_args *args)
{
	const struct view *lu = &args->views[LU];
	uint64_t bytes, pivots = pivot_bytes(args);

	if (linalg_has_runs(lu))
		return pivots;
	if (__builtin_mul_overflow(view_elements(lu), dtype_size(lu->dtype), &bytes) ||
	    __builtin_add_overflow(aligned(bytes), pivots, &bytes))
		return UINT64_MAX;
	return bytes;
}

/* Dense matrices in the workspace, or lu. */
static struct view target_of(const struct op_args *args, void *room)
{
	struct view v = args->views[LU];

	if (linalg_has_runs(&v))
		return v;
	v.data = room;
	view_make_dense(&v);
	return v;
}

/* What `left`'s columns, which are factored, change of those to the right. */
static int reduce(const struct linalg_batch *left, const struct linalg_batch *right,
                  const struct lu_exchanges *x, const struct launch *launch)
{
	uint64_t n = left->cols, below = left->rows - n;
	struct linalg_batch rest = linalg_batch_block(right, n, 0, below, right->cols),
	                    beside = linalg_batch_block(left, n, 0, below, n);
	const struct linalg_solve solve = {.t = linalg_batch_block(left, 0, 0, n, n),
	                                   .x = linalg_batch_block(right, 0, 0, n, right->cols),
	                                   .unit = true};
	int rc;

	if (right->cols == 0)
		return 0;
	if ((rc = lu_exchange_rows(right, x, launch)) < 0 || (rc = linalg_solve_all(&solve, launch)) < 0)
		return rc;
	return linalg_subtract_product(&beside, false, &solve.x, false, &rest, launch);
}

/* Blocks with at most as many columns as rows. */
static int factor(const struct linalg_batch *m, const struct lu_exchanges *x, const struct launch *launch)
{
	uint64_t half, rest;
	int rc;

	if (m->cols <= LU_PANEL)
		return lu_factor_panel(m, x, launch);
	half = linalg_half(m->cols, LU_PANEL);
	rest = m->cols - half;
	struct linalg_batch left = linalg_batch_block(m, 0, 0, m->rows, half),
	                    right = linalg_batch_block(m, 0, half, m->rows, rest),
	                    corner = linalg_batch_block(m, half, half, m->rows - half, rest),
	                    beside = linalg_batch_block(m, half, 0, m->rows - half, half);
	struct lu_exchanges first = *x, second = *x;

	first.n = half;
	second.begin += half;
	second.n = rest;
	if ((rc = factor(&left, &first, launch)) < 0 || (rc = reduce(&left, &right, &first, launch)) < 0 ||
	    (rc = factor(&corner, &second, launch)) < 0)
		return rc;
	return lu_exchange_rows(&beside, &second, launch);
}

/* Columns of the matrices along axis 1, and what they change of all others. */
static int factor_part(const struct op_args *args, const struct view *target, uint64_t outer,
                       const struct launch *launch)
{
	uint64_t begin = linalg_begin(args), end = linalg_end(args), n = end - begin;
	struct linalg_batch w = linalg_batch_of(target, outer);
	uint64_t rows = w.rows - begin;
	struct linalg_batch panel = linalg_batch_block(&w, begin, begin, rows, n),
	                    before = linalg_batch_block(&w, begin, 0, rows, begin),
	                    behind = linalg_batch_block(&w, begin, end, rows, w.cols - end);
	const struct lu_exchanges x = {launch->workspace, lu_pivots(args), begin, n};
	int rc = 0;

	if (n > 0 &&
	    ((rc = factor(&panel, &x, launch)) < 0 || (rc = lu_exchange_rows(&before, &x, launch)) < 0 ||
	     (rc = reduce(&panel, &behind, &x, launch)) < 0))
		return rc;
	return lu_finish(args, &w, outer, &x, launch);
}

CUDA_LAUNCH(lu_blocked)
{
	struct view target = target_of(args, (char *)launch->workspace + pivot_bytes(args));
	const struct view *from = &args->views[linalg_begin(args) == 0 ? A : LU], *lu = &args->views[LU];
	int rc = 0;

	if (from->data != target.data && !view_is_empty(from))
		rc = cuda_copy_strided(from, &target, cuda_stream(launch));
	for (uint64_t outer = 0; outer < target.shape[0] && rc == 0; outer++)
		rc = factor_part(args, &target, outer, launch);
	if (rc < 0 || target.data == lu->data || view_is_empty(lu))
		return rc;
	return cuda_copy_strided(&target, lu, cuda_stream(launch));
}
