/*
 * blocked.c: Cholesky of any order on GPUs. A matrix is halved: the first half is factored, what lies below it
 * solved for, its square subtracted from the second half, and that factored. Blocks that fit into shared memory
 * are factored by small.cu, and products computed by cuBLAS. All of it is enqueued at once.
 *
 * The work is done in the factor, if its rows or columns are runs of elements and its other triangle need not
 * stay. Else it is done in the workspace, and copied at the end of each part.
 */
#include "cholesky/cholesky.h"
#include "cholesky/kernels.h"

enum { A = CHOLESKY_A, FACTOR = CHOLESKY_FACTOR };

#define SQUARE_MAX 256 /* order up to which both triangles of a square are computed as one product */
#define ALIGNED    256 /* bytes */

bool cholesky_is_direct(const struct op_args *args)
{
	return !cholesky_keeps(args) && linalg_has_runs(&args->views[FACTOR]);
}

/* Dense matrices in the workspace, or the factor. */
static struct view target_of(const struct op_args *args, void *room)
{
	struct view v = args->views[FACTOR];

	if (cholesky_is_direct(args))
		return v;
	v.data = room;
	view_make_dense(&v);
	return v;
}

static uint64_t aligned(uint64_t bytes)
{
	return bytes > UINT64_MAX - ALIGNED ? UINT64_MAX : (bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
}

/* What was found of each matrix, and a copy of the matrices if they are not factored in place. */
static uint64_t bytes_found(const struct op_args *args)
{
	return aligned(args->views[FACTOR].shape[1] * sizeof(int32_t));
}

uint64_t cholesky_blocked_workspace(const struct op_args *args)
{
	const struct view *factor = &args->views[FACTOR];
	uint64_t bytes, found = bytes_found(args);

	if (cholesky_is_direct(args))
		return found;
	if (__builtin_mul_overflow(view_elements(factor), dtype_size(factor->dtype), &bytes) ||
	    __builtin_add_overflow(aligned(bytes), found, &bytes))
		return UINT64_MAX;
	return bytes;
}

/* The lower triangle of c -= a·aᴴ. Blocks on the diagonal are computed with their upper triangles. */
static int subtract_square(const struct linalg_batch *a, const struct linalg_batch *c,
                           const struct launch *launch)
{
	struct linalg_batch turned = linalg_batch_transposed(a);
	uint64_t n = c->rows;
	int rc;

	if (n <= SQUARE_MAX)
		return linalg_subtract_product(a, false, &turned, true, c, launch);
	uint64_t half = linalg_half(n, SQUARE_MAX), rest = n - half;
	struct linalg_batch upper = linalg_batch_block(a, 0, 0, half, a->cols),
	                    lower = linalg_batch_block(a, half, 0, rest, a->cols),
	                    first = linalg_batch_block(c, 0, 0, half, half),
	                    below = linalg_batch_block(c, half, 0, rest, half),
	                    second = linalg_batch_block(c, half, half, rest, rest);
	turned = linalg_batch_transposed(&upper);
	if ((rc = subtract_square(&upper, &first, launch)) < 0 ||
	    (rc = linalg_subtract_product(&lower, false, &turned, true, &below, launch)) < 0)
		return rc;
	return subtract_square(&lower, &second, launch);
}

/* The block of columns [from, to) is factored; what lies below is solved for, and its square subtracted from
 * the rest. */
static int reduce(const struct linalg_batch *m, uint64_t from, uint64_t to, const struct launch *launch)
{
	uint64_t below = m->rows - to;
	struct linalg_batch panel = linalg_batch_block(m, to, from, below, to - from),
	                    rest = linalg_batch_block(m, to, to, below, below);
	const struct linalg_solve solve = {linalg_batch_block(m, from, from, to - from, to - from),
	                                   linalg_batch_transposed(&panel), .conjugated = true};
	int rc;

	if (below == 0 || from == to)
		return 0;
	rc = linalg_solve_all(&solve, launch);
	return rc < 0 ? rc : subtract_square(&panel, &rest, launch);
}

static int factor(const struct linalg_batch *m, const struct launch *launch)
{
	uint64_t n = m->rows, half;
	int rc;

	if (n <= CHOLESKY_SMALL_MAX(m->dtype))
		return n > 0 ? cholesky_factor_block(m, launch) : 0;
	half = linalg_half(n, LINALG_SOLVED_MAX(m->dtype));
	struct linalg_batch first = linalg_batch_block(m, 0, 0, half, half),
	                    second = linalg_batch_block(m, half, half, n - half, n - half);

	if ((rc = factor(&first, launch)) < 0 || (rc = reduce(m, 0, half, launch)) < 0)
		return rc;
	return factor(&second, launch);
}

/* Of the matrices along axis 1. */
static int factor_part(const struct op_args *args, const struct view *target, uint64_t outer,
                       const struct launch *launch)
{
	uint64_t from = linalg_begin(args), to = linalg_end(args);
	struct linalg_batch w = linalg_batch_of(target, outer),
	                    block = linalg_batch_block(&w, from, from, to - from, to - from);
	int rc;

	if ((rc = factor(&block, launch)) < 0 || (rc = reduce(&w, from, to, launch)) < 0)
		return rc;
	return cholesky_is_last(args) || !cholesky_is_direct(args)
	           ? cholesky_finish(args, &w, outer, launch->workspace, launch)
	           : 0;
}

CUDA_LAUNCH(cholesky_blocked)
{
	struct view target = target_of(args, (char *)launch->workspace + bytes_found(args));
	const struct view *from = &args->views[cholesky_is_first(args) ? A : FACTOR];
	int rc = 0;

	if (from->data != target.data && !view_is_empty(from))
		rc = cuda_copy_strided(from, &target, cuda_stream(launch));
	for (uint64_t outer = 0; outer < target.shape[0] && rc == 0; outer++)
		rc = factor_part(args, &target, outer, launch);
	return rc;
}
