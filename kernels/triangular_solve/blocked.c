/*
 * blocked.c: triangular systems of any size on GPUs, in x. The first half of the rows is solved for, its
 * products are subtracted from the others, and these solved for. Triangles that fit into shared memory are
 * solved by linalg/solve.cu, and products computed by cuBLAS.
 *
 * What cuBLAS does not take, since rows and columns of a or of x are no runs of elements or their directions
 * differ, is copied to the workspace.
 */
#include <string.h>

#include "linalg/batch.h"
#include "linalg/counts.h"
#include "triangular_solve/kernels.h"
#include "triangular_solve/operands.h"

enum { A = SOLVE_A, B = SOLVE_B, X = SOLVE_X };

#define ALIGNED 256 /* bytes */

/* With the rows and columns of a, and the rows of x, that have negative strides numbered from the other end. */
static struct view forwards(struct view v)
{
	for (uint32_t d = 2; d < 4; d++)
		v.strides[d] = v.strides[d] < 0 ? -v.strides[d] : v.strides[d];
	return v;
}

static bool is_backwards(const struct view *v, uint32_t axis)
{
	return v->shape[axis] > 1 && v->strides[axis] < 0;
}

/* Whether products of blocks are such that cuBLAS takes. */
static bool is_direct(const struct op_args *args)
{
	const struct view *a = &args->views[A], *x = &args->views[X];
	struct view of_a = forwards(*a), of_x = forwards(*x);
	bool backwards = is_backwards(x, 2);

	return linalg_has_runs(&of_a) && linalg_has_runs(&of_x) && is_backwards(a, 2) == backwards &&
	       is_backwards(a, 3) == backwards && !is_backwards(x, 3);
}

static bool is_one_block(const struct op_args *args)
{
	const struct view *x = &args->views[X];

	return x->shape[2] <= LINALG_SOLVED_MAX(x->dtype);
}

static uint64_t dense_bytes(const struct view *v)
{
	uint64_t bytes;

	if (__builtin_mul_overflow(view_elements(v), dtype_size(v->dtype), &bytes) || bytes > UINT64_MAX / 4)
		return UINT64_MAX / 4;
	return (bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
}

uint64_t triangular_solve_workspace(const struct op_args *args)
{
	return is_direct(args) || is_one_block(args)
	           ? 0
	           : dense_bytes(&args->views[A]) + dense_bytes(&args->views[X]);
}

static struct view rows_of(const struct view *v, uint64_t begin, uint64_t end)
{
	struct view rows = *v;

	view_narrow(&rows, 2, begin, end - begin);
	return rows;
}

void triangular_solve_touched(const struct op_args *args, struct op_args *ret)
{
	uint64_t begin = linalg_begin(args), end = linalg_end(args);

	*ret = *args;
	ret->views[A] = rows_of(&args->views[A], begin, end);
	view_narrow(&ret->views[A], 3, 0, end);
	ret->views[B] = rows_of(&args->views[B], begin, end);
	ret->views[X] = rows_of(&args->views[X], 0, end);
}

/* Dense matrices there. */
static struct view dense_at(const struct view *v, void *data)
{
	struct view dense = *v;

	dense.data = data;
	view_make_dense(&dense);
	return dense;
}

static int copy(const struct view *from, const struct view *to, const struct launch *launch)
{
	return view_is_empty(from) || from->data == to->data ? 0
	                                                     : cuda_copy_strided(from, to, cuda_stream(launch));
}

static int copy_rows(const struct view *from, const struct view *to, uint64_t begin, uint64_t end,
                     const struct launch *launch)
{
	struct view x = rows_of(from, begin, end), y = rows_of(to, begin, end);

	return copy(&x, &y, launch);
}

/* Copies what the part reads of a, and of the rows of x before its own, to the workspace. */
static int copy_in(const struct op_args *args, const struct view *a, const struct view *x,
                   const struct launch *launch)
{
	struct op_args from, to = *args;
	int rc;

	to.views[A] = *a;
	to.views[X] = *x;
	triangular_solve_touched(args, &from);
	triangular_solve_touched(&to, &to);
	rc = copy(&from.views[A], &to.views[A], launch);
	return rc < 0 ? rc : copy_rows(&args->views[X], x, 0, linalg_begin(args), launch);
}

/* Rows [begin, end) of the matrices along axis 1. */
static int solve_rows(const struct op_args *args, const struct view *a, const struct view *x, uint64_t outer,
                      const struct launch *launch)
{
	uint64_t begin = linalg_begin(args), end = linalg_end(args), n = end - begin;
	struct linalg_batch of_a = linalg_batch_of(a, outer), of_x = linalg_batch_of(x, outer),
	                    before = linalg_batch_block(&of_x, 0, 0, begin, of_x.cols),
	                    beside = linalg_batch_block(&of_a, begin, 0, n, begin);
	struct linalg_solve s = {linalg_batch_block(&of_a, begin, begin, n, n),
	                         linalg_batch_block(&of_x, begin, 0, n, of_x.cols), solve_has(args, SOLVE_CONJ),
	                         solve_has(args, SOLVE_UNIT)};
	int rc = linalg_subtract_product(&beside, s.conjugated, &before, false, &s.x, launch);

	return rc < 0 || n == 0 ? rc : linalg_solve_all(&s, launch);
}

CUDA_LAUNCH(triangular_solve_blocked)
{
	struct view a = args->views[A], x = args->views[X];
	uint64_t begin = linalg_begin(args), end = linalg_end(args);
	bool is_copied = triangular_solve_workspace(args) > 0;
	int rc = 0;

	if (is_copied) {
		a = dense_at(&a, launch->workspace);
		x = dense_at(&x, (char *)launch->workspace + dense_bytes(&a));
		rc = copy_in(args, &a, &x, launch);
	}
	rc = rc < 0 ? rc : copy_rows(&args->views[B], &x, begin, end, launch);
	for (uint64_t outer = 0; outer < x.shape[0] && rc == 0; outer++)
		rc = solve_rows(args, &a, &x, outer, launch);
	return rc < 0 || !is_copied ? rc : copy_rows(&x, &args->views[X], begin, end, launch);
}
