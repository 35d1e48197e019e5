/*
 * cholesky: factor = L with a = L·Lᴴ, L lower triangular with a positive diagonal; or U with a = Uᴴ·U.
 *
 * Only one triangle of a is read. With the axes of a and of the factor exchanged, the upper case becomes the
 * lower one: aᵀ = Uᵀ·Uᵀᴴ. So check() exchanges them, and there is no upper case afterwards.
 *
 * A pivot that is not positive, or is NaN, becomes NaN. So info is told by the first NaN on the diagonal, also
 * where the factor was made in parts.
 */
#include "cholesky/cholesky.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { A = CHOLESKY_A, FACTOR = CHOLESKY_FACTOR, INFO = CHOLESKY_INFO };

static const struct op_operand operands[] = {
    [A] = {.name = "a",
           .dtypes = LINALG_TYPES,
           .dtype_of = OWN_DTYPE,
           .has_large_diagonal = true,
           .about = "[…, n, n]: symmetric or Hermitian matrices, of which one triangle is read"},
    [FACTOR] = {.name = "factor",
                .role = OPERAND_UPDATED,
                .dtypes = LINALG_TYPES,
                .dtype_of = A,
                .in_place = 1u << A,
                .about = "a's shape"},
    [INFO] = {.name = "info",
              .role = OPERAND_OUTPUT,
              .is_optional = true,
              .is_result = true,
              .dtypes = DTYPE_BIT(KOPS_I32),
              .dtype_of = OWN_DTYPE,
              .about =
                  "[…], [1] of one matrix: 0, or the order of the first leading minor that is not positive "
                  "definite"},
};

#define FLAG(NAME, place, text)                                                                                \
	{                                                                                                      \
		.name = NAME, .type = ATTRIBUTE_FLAG, .offset = offsetof(struct plain_params, flags[place]),   \
		.about = text                                                                                  \
	}

static const struct op_attribute attributes[] = {
    FLAG("upper", CHOLESKY_UPPER, "a's upper triangle is read, and the factor is upper"),
    FLAG("keep", CHOLESKY_KEEP, "the factor's other triangle stays as it is, instead of becoming zeros"),
};

static int result(struct op_args *args, char why[WHY_BYTES])
{
	int rc = linalg_check_square(&args->views[A], "a", why);

	if (rc == 0)
		linalg_result_beside(&args->views[A], &args->views[INFO], NO_LAST_AXIS);
	return rc;
}

static int check(struct op_args *args, char why[WHY_BYTES])
{
	struct view *a = &args->views[A], *factor = &args->views[FACTOR], *info = &args->views[INFO];
	struct plain_params *p = &args->params.plain;
	bool has_info = !view_is_absent(info);
	int rc;

	if ((rc = linalg_check_square(a, "a", why)) < 0 ||
	    (rc = rules_same_shape(a, "a", factor, "factor", why)) < 0 ||
	    (has_info && (rc = linalg_check_beside(a, info, "info", NO_LAST_AXIS, why)) < 0) ||
	    (rc = rules_outputs(args, why)) < 0)
		return rc;
	linalg_fold((struct view *[]){a, factor, info}, 2 + has_info, 1u << INFO);
	if (p->flags[CHOLESKY_UPPER]) {
		linalg_transpose(a);
		linalg_transpose(factor);
	}
	p->flags[CHOLESKY_UPPER] = false;
	p->counts[LINALG_BEGIN] = 0;
	p->counts[LINALG_END] = (uint32_t)cholesky_order(args);
	return 0;
}

/* Of the factor's other triangle, or of what parts before have done. */
static bool reads_output(const struct op_args *args, unsigned v)
{
	return v == FACTOR && (cholesky_keeps(args) || !cholesky_is_first(args));
}

/* A complex product and sum are four real ones. */
static void cost(const struct op_args *args, struct cost *ret)
{
	const struct view *factor = &args->views[FACTOR];
	double n = (double)cholesky_order(args), before = n - (double)linalg_begin(args),
	       after = n - (double)linalg_end(args), real = dtype_components(factor->dtype) > 1 ? 4 : 1;

	ret->flops =
	    real * (double)linalg_matrices(factor) * (before * before * before - after * after * after) / 3;
	ret->bytes = rules_bytes(&args->views[A]) / 2 + rules_bytes(factor) / (cholesky_keeps(args) ? 2 : 1) +
	             rules_bytes(&args->views[INFO]);
}

/* ---- The reference ---- */

/* The diagonal of a is real, whatever its imaginary part is. */
static struct number of_diagonal(struct number x, bool is_diagonal)
{
	return (struct number){x.re, is_diagonal ? 0 : x.im};
}

static void copy_triangle(const struct linalg_matrix *a, const struct linalg_matrix *f)
{
	for (uint64_t i = 0; i < f->rows; i++)
		for (uint64_t j = 0; j <= i; j++)
			linalg_store(f, i, j, of_diagonal(linalg_load(a, i, j), i == j));
}

/* f[i, j] less the products of columns [from, to). */
static struct number less_products(const struct linalg_matrix *f, uint64_t i, uint64_t j, uint64_t from,
                                   uint64_t to)
{
	struct number x = linalg_load(f, i, j);

	for (uint64_t k = from; k < to; k++) {
		x = linalg_less_product(x, linalg_load(f, i, k), number_conjugate(linalg_load(f, j, k), true));
	}
	return of_diagonal(x, i == j);
}

/* Columns [begin, end), and what they change of those behind. */
static void factor_columns(const struct linalg_matrix *f, uint64_t begin, uint64_t end)
{
	for (uint64_t j = begin; j < end; j++) {
		double pivot = less_products(f, j, j, begin, j).re,
		       root = pivot > 0 ? sqrt(pivot) : (double)NAN;

		linalg_store(f, j, j, (struct number){root, 0});
		for (uint64_t i = j + 1; i < f->rows; i++) {
			struct number x = less_products(f, i, j, begin, j);
			linalg_store(f, i, j, (struct number){x.re / root, x.im / root});
		}
	}
	for (uint64_t i = end; i < f->rows; i++)
		for (uint64_t j = end; j <= i; j++)
			linalg_store(f, i, j, less_products(f, i, j, begin, end));
}

static int32_t info_of(const struct linalg_matrix *f)
{
	for (uint64_t j = 0; j < f->rows; j++)
		if (isnan(linalg_load(f, j, j).re))
			return (int32_t)j + 1;
	return 0;
}

static void finish(const struct op_args *args, const struct linalg_matrix *f, uint64_t matrix)
{
	const struct view *info = &args->views[INFO];
	int32_t failed = info_of(f);

	for (uint64_t i = 0; i < f->rows; i++) {
		for (uint64_t j = 0; failed && j <= i; j++)
			linalg_store(f, i, j, (struct number){(double)NAN, (double)NAN});
		for (uint64_t j = i + 1; !cholesky_keeps(args) && j < f->cols; j++)
			linalg_store(f, i, j, (struct number){0, 0});
	}
	if (!view_is_absent(info))
		((int32_t *)info->data)[linalg_place(info, matrix)] = failed;
}

static void reference(const struct op_args *args)
{
	for (uint64_t i = 0; i < linalg_matrices(&args->views[FACTOR]); i++) {
		struct linalg_matrix a = linalg_matrix_of(&args->views[A], i),
		                     f = linalg_matrix_of(&args->views[FACTOR], i);

		if (cholesky_is_first(args))
			copy_triangle(&a, &f);
		factor_columns(&f, linalg_begin(args), linalg_end(args));
		if (cholesky_is_last(args))
			finish(args, &f, i);
	}
}

/* ---- What is right ---- */

static bool is_zero(struct number x)
{
	return x.re == 0 && x.im == 0;
}

static bool is_same(struct number x, struct number y)
{
	return memcmp(&x, &y, sizeof x) == 0 || (isnan(x.re) && isnan(y.re));
}

/*
 * The products of row i of L with the conjugate of row j, and their magnitudes: any order of summing is as far
 * from a as (j + 3) u times these (N. Higham, Accuracy and Stability, 10.1); 4 times that covers complex
 * arithmetic and division by a reciprocal. Numbers that may be flushed to 0 count in products.
 */
static double residual_at(const struct linalg_matrix *a, const struct linalg_matrix *f, uint64_t i, uint64_t j)
{
	struct number x = of_diagonal(linalg_load(a, i, j), i == j);
	double total = linalg_magnitude(x), u = linalg_roundoff(f->dtype), largest = 1;

	for (uint64_t k = 0; k <= j; k++) {
		struct number l = linalg_load(f, i, k), m = number_conjugate(linalg_load(f, j, k), true);

		x = linalg_less_product(x, l, m);
		total += linalg_magnitude(l) * linalg_magnitude(m);
		largest = fmax(largest, fmax(linalg_magnitude(l), linalg_magnitude(m)));
	}
	if (!(total < (double)INFINITY))
		return 0;
	return linalg_magnitude(of_diagonal(x, i == j)) /
	       (4 * (double)(j + 3) * (u * total + linalg_smallest(f->dtype) * largest));
}

/* Whether a leading minor of this order, or one before it, is so near to not being positive definite that
 * rounding decides, or is not. Of a in float64. */
static bool may_fail(const struct linalg_matrix *a, uint64_t order)
{
	double u = linalg_roundoff(a->dtype), n = (double)order;
	struct view wide = {.dtype = KOPS_C128, .rank = 2, .shape = {order, order}};
	bool fails = false;

	view_make_dense(&wide);
	wide.data = calloc(order * order, sizeof(struct number));
	if (!wide.data)
		return true;
	struct linalg_matrix f = {wide.data, KOPS_C128, order, order, (int64_t)order, 1},
	                     part = linalg_block(a, 0, 0, order, order);
	copy_triangle(&part, &f);
	for (uint64_t j = 0; j < order && !fails; j++) {
		double whole = linalg_load(&f, j, j).re, pivot = less_products(&f, j, j, 0, j).re;

		fails = !(pivot > 16 * n * u * whole + n * linalg_smallest(a->dtype)) || !(pivot < 1e300);
		factor_columns(&f, j, fails ? j : j + 1);
	}
	free(wide.data);
	return fails;
}

static double residual(const struct op_args *before, const struct op_args *after, uint64_t row)
{
	uint64_t n = cholesky_order(before), matrix = row / n, i = row % n;
	const struct view *info = &after->views[INFO];
	struct linalg_matrix a = linalg_matrix_of(&before->views[A], matrix),
	                     old = linalg_matrix_of(&before->views[FACTOR], matrix),
	                     f = linalg_matrix_of(&after->views[FACTOR], matrix);
	bool failed = isnan(linalg_load(&f, 0, 0).re);
	double worst = 0;
	int32_t order = (int32_t)n;

	if (!view_is_absent(info)) {
		order = ((const int32_t *)info->data)[linalg_place(info, matrix)];
		if (order < 0 || (uint64_t)order > n || failed != (order > 0))
			return (double)INFINITY;
	}
	if (failed && i == 0 && !may_fail(&a, (uint64_t)order))
		return (double)INFINITY;
	for (uint64_t j = 0; j < n; j++) {
		struct number x = linalg_load(&f, i, j);

		if (j > i    ? !(cholesky_keeps(before) ? is_same(x, linalg_load(&old, i, j)) : is_zero(x))
		    : failed ? !isnan(x.re)
		             : i == j && !(x.re > 0 && x.im == 0))
			return (double)INFINITY;
		if (j <= i && !failed)
			worst = fmax(worst, residual_at(&a, &f, i, j));
	}
	return worst;
}

/* ---- Samples ---- */

static bool sample(kops_dtype dtype, struct op_args *args)
{
	if (!op_takes(&op_cholesky, dtype))
		return false;
	*args = (struct op_args){.op = &op_cholesky};
	args->views[A] = args->views[FACTOR] =
	    (struct view){.dtype = dtype, .rank = 3, .shape = {2, 47, 47}, .strides = {47 * 47, 47, 1}};
	args->views[INFO] = (struct view){.dtype = KOPS_I32, .rank = 1, .shape = {2}, .strides = {1}};
	return true;
}

/* The diagonal of a is above 2 n, and that of the factor the root of it; the rest is small. */
static double tolerance(const struct op_args *args)
{
	double n = (double)args->views[A].shape[args->views[A].rank - 1];

	return 8 * n * linalg_roundoff(args->views[A].dtype) * sqrt(2 * n);
}

/* ---- Parts ---- */

static uint64_t steps(const struct op_args *args)
{
	return linalg_steps(cholesky_order(args), cholesky_order(args));
}

static void step_part(struct op_args *args, unsigned pass, uint64_t first, uint64_t n)
{
	(void)pass;
	linalg_set_part(args, cholesky_order(args), cholesky_order(args), first, n);
}

static const struct part_axis part_axes[] = {{{0, 0, 0}, false}, {{1, 1, 1}, false}};

const struct op op_cholesky = {
    .name = "cholesky",
    .title = "Cholesky factorisation",
    .about = "factor = L with a = L * LH, or U with a = UH * U",
    .notes =
        "LH is the conjugate transpose of L. Where a matrix is not positive definite, info is the order of the "
        "first leading minor that is not, or "
        "that has a NaN, and the factor's triangle is NaN. The imaginary parts of a's diagonal count as 0.",
    .operands = operands,
    .n_operands = sizeof operands / sizeof operands[0],
    .attributes = attributes,
    .n_attributes = sizeof attributes / sizeof attributes[0],
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
    .size_form = "BATCHxN",
    .of_size = linalg_of_size,
    .size_spans = linalg_size_spans,
    .counts_flops = true,
    .bench_shapes = "1x512,100x256,1000x64,10000x32,1x1024,1x2048,1x4096,1x8192,1x16384",
};
