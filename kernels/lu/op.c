/*
 * lu: P·a = L·U with partial pivoting. lu holds U, and below it L without its diagonal of ones.
 *
 * The pivot of a column is the element of the largest |re| + |im| on or below the diagonal, as in LAPACK's
 * getrf, of equal ones the first. Rounding may make another one the largest, so tests multiply back.
 *
 * A part has some columns. It exchanges the rows of all others, too, and subtracts its products from those
 * behind.
 */
#include "lu/operands.h"

#include <math.h>
#include <string.h>

#include "linalg/linalg.h"

enum { A = LU_A, LU = LU_LU, PIVOTS = LU_PIVOTS, INFO = LU_INFO };

static const struct op_operand operands[] = {
    [A] = {.name = "a", .dtypes = LINALG_TYPES, .dtype_of = OWN_DTYPE, .about = "[…, m, n]"},
    [LU] = {.name = "lu",
            .role = OPERAND_OUTPUT,
            .dtypes = LINALG_TYPES,
            .dtype_of = A,
            .in_place = 1u << A,
            .about = "a's shape"},
    [PIVOTS] = {.name = "pivots",
                .role = OPERAND_OUTPUT,
                .is_optional = true,
                .is_result = true,
                .dtypes = DTYPE_BIT(KOPS_I32),
                .dtype_of = OWN_DTYPE,
                .about = "[…, min(m, n)]: row i was exchanged with row pivots[i], from 0 on"},
    [INFO] =
        {.name = "info",
         .role = OPERAND_OUTPUT,
         .is_optional = true,
         .is_result = true,
         .dtypes = DTYPE_BIT(KOPS_I32),
         .dtype_of = OWN_DTYPE,
         .about =
             "[…], [1] of one matrix: 0, or the number, from 1 on, of the first diagonal element of U that "
             "is 0"},
};

/* A column is at least one step, which should not take long. */
#define ROWS_MAX (1u << 26)

static int check_rows(const struct view *a, char why[WHY_BYTES])
{
	char text[RULES_SHAPE_BYTES];
	int rc = linalg_check_matrices(a, "a", why);

	if (rc == 0 && a->shape[a->rank - 2] > ROWS_MAX)
		rc = rules_refuse(why, KOPS_E_SHAPE, "a is %s; matrices have at most %u rows",
		                  rules_shape(a, text), ROWS_MAX);
	return rc;
}

static int result(struct op_args *args, char why[WHY_BYTES])
{
	const struct view *a = &args->views[A];
	int rc = check_rows(a, why);

	if (rc < 0)
		return rc;
	uint64_t m = a->shape[a->rank - 2], n = a->shape[a->rank - 1], k = m < n ? m : n;
	linalg_result_beside(a, &args->views[PIVOTS], k);
	linalg_result_beside(a, &args->views[INFO], NO_LAST_AXIS);
	return 0;
}

static int check(struct op_args *args, char why[WHY_BYTES])
{
	struct view *a = &args->views[A], *lu = &args->views[LU],
	            *others[] = {&args->views[PIVOTS], &args->views[INFO]}, *all[4] = {lu, a};
	unsigned n_views = 2, beside = 0;
	int rc;

	if ((rc = check_rows(a, why)) < 0 || (rc = rules_same_shape(a, "a", lu, "lu", why)) < 0)
		return rc;
	uint64_t m = a->shape[a->rank - 2], n = a->shape[a->rank - 1];
	for (unsigned i = 0; i < 2; i++) {
		if (view_is_absent(others[i]))
			continue;
		if ((rc = linalg_check_beside(a, others[i], i == 0 ? "pivots" : "info",
		                              i > 0   ? NO_LAST_AXIS
		                              : m < n ? m
		                                      : n,
		                              why)) < 0)
			return rc;
		beside |= 1u << n_views;
		all[n_views++] = others[i];
	}
	if ((rc = rules_outputs(args, why)) < 0)
		return rc;
	linalg_fold(all, n_views, beside);
	args->params.plain.counts[LINALG_BEGIN] = 0;
	args->params.plain.counts[LINALG_END] = (uint32_t)lu_pivots(args);
	return 0;
}

/* Parts go on with what those before have left, and with their pivots. */
static bool reads_output(const struct op_args *args, unsigned v)
{
	return v == LU && linalg_begin(args) > 0;
}

/* Of the first k columns, and what they change of all others. */
static double flops_of(const struct view *lu, double k)
{
	double m = (double)lu->shape[2], n = (double)lu->shape[3];

	return 2 * m * n * k - (m + n) * k * k + 2 * k * k * k / 3;
}

static void cost(const struct op_args *args, struct cost *ret)
{
	const struct view *lu = &args->views[LU];
	double real = dtype_components(lu->dtype) > 1 ? 4 : 1;

	ret->flops = real * (double)linalg_matrices(lu) *
	             (flops_of(lu, (double)linalg_end(args)) - flops_of(lu, (double)linalg_begin(args)));
	ret->bytes = rules_bytes(&args->views[A]) + rules_bytes(lu) + rules_bytes(&args->views[PIVOTS]) +
	             rules_bytes(&args->views[INFO]);
}

/* ---- The reference ---- */

static uint64_t pivot_of(const struct linalg_matrix *m, uint64_t j)
{
	double largest = linalg_magnitude(linalg_load(m, j, j));
	uint64_t pivot = j;

	for (uint64_t i = j + 1; i < m->rows; i++) {
		double x = linalg_magnitude(linalg_load(m, i, j));
		pivot = x > largest ? i : pivot;
		largest = x > largest ? x : largest;
	}
	return pivot;
}

static void exchange(const struct linalg_matrix *m, uint64_t i, uint64_t k)
{
	for (uint64_t j = 0; j < m->cols; j++) {
		struct number x = linalg_load(m, i, j);
		linalg_store(m, i, j, linalg_load(m, k, j));
		linalg_store(m, k, j, x);
	}
}

/* Scales column j below the diagonal, and subtracts its products from what is to the right. */
static void eliminate(const struct linalg_matrix *m, uint64_t j)
{
	struct number pivot = linalg_load(m, j, j);

	for (uint64_t i = j + 1; i < m->rows; i++) {
		struct number x = linalg_load(m, i, j);
		if (pivot.re != 0 || pivot.im != 0)
			x = linalg_quotient(x, pivot);
		linalg_store(m, i, j, x);
		x = linalg_load(m, i, j);
		for (uint64_t k = j + 1; k < m->cols; k++)
			linalg_store(m, i, k,
			             linalg_less_product(linalg_load(m, i, k), x, linalg_load(m, j, k)));
	}
}

static int32_t info_of(const struct linalg_matrix *m, uint64_t pivots)
{
	for (uint64_t j = 0; j < pivots; j++)
		if (linalg_magnitude(linalg_load(m, j, j)) == 0)
			return (int32_t)j + 1;
	return 0;
}

static void put_i32(const struct view *v, uint64_t matrix, uint64_t i, int32_t value)
{
	if (!view_is_absent(v))
		((int32_t *)v->data)[linalg_place(v, matrix) + (int64_t)i * v->strides[3]] = value;
}

static void reference(const struct op_args *args)
{
	uint64_t k = lu_pivots(args);

	for (uint64_t matrix = 0; matrix < linalg_matrices(&args->views[LU]); matrix++) {
		struct linalg_matrix a = linalg_matrix_of(&args->views[A], matrix),
		                     m = linalg_matrix_of(&args->views[LU], matrix);

		for (uint64_t i = 0; linalg_begin(args) == 0 && i < m.rows; i++)
			for (uint64_t j = 0; j < m.cols; j++)
				linalg_store(&m, i, j, linalg_load(&a, i, j));
		for (uint64_t j = linalg_begin(args); j < linalg_end(args); j++) {
			uint64_t pivot = pivot_of(&m, j);

			put_i32(&args->views[PIVOTS], matrix, j, (int32_t)pivot);
			exchange(&m, j, pivot);
			eliminate(&m, j);
		}
		if (linalg_end(args) == k)
			put_i32(&args->views[INFO], matrix, 0, info_of(&m, k));
	}
}

/* ---- What is right ---- */

/* Returns which row of a became row i; UINT64_MAX if a pivot is none. */
static uint64_t source_of(const struct op_args *after, uint64_t matrix, uint64_t i)
{
	const struct view *pivots = &after->views[PIVOTS];
	uint64_t rows = after->views[LU].shape[2], source = i;

	for (uint64_t j = lu_pivots(after); j-- > 0;) {
		int32_t pivot =
		    ((const int32_t *)
		         pivots->data)[linalg_place(pivots, matrix) + (int64_t)j * pivots->strides[3]];

		if (pivot < (int64_t)j || (uint64_t)pivot >= rows)
			return UINT64_MAX;
		source = source == j ? (uint64_t)pivot : source == (uint64_t)pivot ? j : source;
	}
	return source;
}

/* The products of row i of L with column j of U lie within (k + 3) u times their magnitudes of a, in any order
 * of summing (N. Higham, Accuracy and Stability, 9.3); 4 times that covers complex arithmetic. */
static double residual_at(const struct linalg_matrix *a, const struct linalg_matrix *m, uint64_t source,
                          uint64_t i, uint64_t j)
{
	struct number x = linalg_load(a, source, j);
	double total = linalg_magnitude(x), largest = 1;
	uint64_t k = 0;

	for (; k < i && k <= j; k++) {
		struct number l = linalg_load(m, i, k), u = linalg_load(m, k, j);

		x = linalg_less_product(x, l, u);
		total += linalg_magnitude(l) * linalg_magnitude(u);
		largest = fmax(largest, fmax(linalg_magnitude(l), linalg_magnitude(u)));
	}
	if (j >= i) {
		struct number u = linalg_load(m, i, j);

		x = (struct number){x.re - u.re, x.im - u.im};
		total += linalg_magnitude(u);
	}
	if (!(total < (double)INFINITY))
		return 0;
	return linalg_magnitude(x) /
	       (4 * (double)(k + 3) *
	        (linalg_roundoff(m->dtype) * total + linalg_smallest(m->dtype) * largest));
}

/* Whether any number of a is so large, or none, that rounding or the order of sums decides what becomes of it.
 */
static bool leaves_range(const struct linalg_matrix *a)
{
	double largest = dtype_component(a->dtype) == KOPS_F64 ? 1e140 : 1e15;

	for (uint64_t i = 0; i < a->rows; i++)
		for (uint64_t j = 0; j < a->cols; j++)
			if (!(linalg_magnitude(linalg_load(a, i, j)) < largest))
				return true;
	return false;
}

static double residual(const struct op_args *before, const struct op_args *after, uint64_t row)
{
	const struct view *view = &after->views[LU], *info = &after->views[INFO];
	uint64_t matrix = row / view->shape[2], i = row % view->shape[2], source = 0;
	struct linalg_matrix a = linalg_matrix_of(&before->views[A], matrix),
	                     m = linalg_matrix_of(view, matrix);
	double most = dtype_components(m.dtype) > 1 ? 1.4143 : 1.000001, worst = 0;

	if (view_is_absent(&after->views[PIVOTS]))
		return 0; /* nobody knows which row it was */
	if ((source = source_of(after, matrix, i)) == UINT64_MAX ||
	    (!view_is_absent(info) &&
	     ((const int32_t *)info->data)[linalg_place(info, matrix)] != info_of(&m, lu_pivots(after))))
		return (double)INFINITY;
	for (uint64_t j = 0; j < m.cols; j++) {
		struct number x = linalg_load(&m, i, j);

		if (j < i && hypot(x.re, x.im) > most && !leaves_range(&a))
			return (double)INFINITY;
		if (!linalg_is_finite(x) && !leaves_range(&a))
			return (double)INFINITY;
		worst = fmax(worst, residual_at(&a, &m, source, i, j));
	}
	return worst;
}

/* ---- Samples ---- */

static bool sample(kops_dtype dtype, struct op_args *args)
{
	if (!op_takes(&op_lu, dtype))
		return false;
	*args = (struct op_args){.op = &op_lu};
	args->views[A] = args->views[LU] = (struct view){.dtype = dtype, .rank = 3, .shape = {2, 45, 39}};
	args->views[PIVOTS] = (struct view){.dtype = KOPS_I32, .rank = 2, .shape = {2, 39}};
	args->views[INFO] = (struct view){.dtype = KOPS_I32, .rank = 1, .shape = {2}};
	for (unsigned v = A; v <= INFO; v++)
		view_make_dense(&args->views[v]);
	return true;
}

/* Elements of U grow to some units. */
static double tolerance(const struct op_args *args)
{
	return 4096 * linalg_roundoff(args->views[LU].dtype);
}

/* "BATCHxMxN" */
static void of_size(const uint64_t *extents, struct op_args *args)
{
	linalg_of_size(extents, args);
	args->views[A].shape[args->views[A].rank - 1] = extents[2];
}

static const struct size_span size_spans[] = {
    {1, 100, (const uint64_t[]){1, 0}},
    {2, 2000, (const uint64_t[]){16, 32, 64, 128, 256, 512, 1024, 0}},
    {2, 2000, (const uint64_t[]){16, 32, 64, 128, 256, 512, 1024, 0}},
};

/* ---- Parts ---- */

static uint64_t steps(const struct op_args *args)
{
	return linalg_steps(lu_pivots(args), args->views[LU].shape[2]);
}

static void step_part(struct op_args *args, unsigned pass, uint64_t first, uint64_t n)
{
	(void)pass;
	linalg_set_part(args, lu_pivots(args), args->views[LU].shape[2], first, n);
}

static const struct part_axis part_axes[] = {{{0, 0, 0, 0}, false}, {{1, 1, 1, 1}, false}};

const struct op op_lu = {
    .name = "lu",
    .title = "LU factorisation with partial pivoting",
    .about = "lu = L and U with P * a = L * U, pivots = the exchanges of rows that make P",
    .notes = "L's diagonal of ones is left out. A pivot is the element of the largest |re| + |im| of its "
             "column, the first "
             "of equal ones. A column of zeros gives a 0 in U, which info tells; the factorisation goes on.",
    .operands = operands,
    .n_operands = sizeof operands / sizeof operands[0],
    .part_axes = part_axes,
    .n_part_axes = sizeof part_axes / sizeof part_axes[0],
    .passes = 1,
    .steps = steps,
    .step_part = step_part,
    .check = check,
    .result = result,
    .reads_output = reads_output,
    .cost = cost,
    .reference = reference,
    .residual = residual,
    .sample = sample,
    .tolerance = tolerance,
    .size_form = "BATCHxMxN",
    .of_size = of_size,
    .size_spans = size_spans,
    .counts_flops = true,
    .bench_shapes = "1x512x512,1000x64x64,10000x32x32,1x1024x1024,1x2048x2048,1x4096x4096,1x8192x8192",
};
