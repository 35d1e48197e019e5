/*
 * triangular_solve: x with a·x = b, or x·a = b, a triangular.
 *
 * There is one case after check(): the lower triangle of a, from the left. x·a = b is aᵀ·xᵀ = bᵀ. An upper
 * triangle is a lower one if its rows and columns, and those of b and x, are numbered from the other end: by
 * negative strides.
 *
 * A part has some rows of x. It subtracts the products of those before, and solves for its own.
 */
#include "triangular_solve/operands.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "linalg/linalg.h"

enum { A = SOLVE_A, B = SOLVE_B, X = SOLVE_X };

static const struct op_operand operands[] = {
    [A] = {.name = "a",
           .dtypes = LINALG_TYPES,
           .dtype_of = OWN_DTYPE,
           .has_large_diagonal = true,
           .about = "[…, n, n], of which one triangle is read; repeated along the axes before"},
    [B] = {.name = "b", .dtypes = LINALG_TYPES, .dtype_of = A, .about = "[…, n, m], or […, m, n] with right"},
    [X] = {.name = "x",
           .role = OPERAND_OUTPUT,
           .dtypes = LINALG_TYPES,
           .dtype_of = A,
           .in_place = 1u << B,
           .about = "b's shape"},
};

#define FLAG(NAME, place, text)                                                                                \
	{                                                                                                      \
		.name = NAME, .type = ATTRIBUTE_FLAG, .offset = offsetof(struct plain_params, flags[place]),   \
		.about = text                                                                                  \
	}

static const struct op_attribute attributes[] = {
    FLAG("upper", SOLVE_UPPER, "a's upper triangle is read"),
    FLAG("unit", SOLVE_UNIT, "the diagonal counts as 1, and is not read"),
    FLAG("conj_a", SOLVE_CONJ, "a stands for its conjugate; transposed, its view has the strides exchanged"),
    FLAG("right", SOLVE_RIGHT, "x * a = b"),
};

/* Gives a the axes of b's matrices. */
static int spread(struct view *ret, const struct view *a, const struct view *b, char why[WHY_BYTES])
{
	struct view goal = *b, wide = *a;
	int rc;

	goal.shape[b->rank - 2] = goal.shape[b->rank - 1] = a->shape[a->rank - 1];
	if (a->rank > b->rank)
		return rules_refuse(why, KOPS_E_SHAPE, "a has more axes, %u, than b, %u", a->rank, b->rank);
	if ((rc = rules_spread(&wide, "a", &goal, "the axes of b", b->rank, why)) == 0)
		*ret = wide;
	return rc;
}

/* b is the side of a times anything. */
static int check_shapes(const struct op_args *args, char why[WHY_BYTES])
{
	const struct view *a = &args->views[A], *b = &args->views[B];
	bool right = solve_has(args, SOLVE_RIGHT);
	char ta[RULES_SHAPE_BYTES], tb[RULES_SHAPE_BYTES];
	int rc;

	if ((rc = linalg_check_square(a, "a", why)) < 0 || (rc = linalg_check_matrices(b, "b", why)) < 0)
		return rc;
	if (a->shape[a->rank - 1] == b->shape[b->rank - (right ? 1 : 2)])
		return spread(&(struct view){.dtype = 0}, a, b, why);
	return rules_refuse(why, KOPS_E_SHAPE, "a is %s and b %s; b must have as many %s as a",
	                    rules_shape(a, ta), rules_shape(b, tb), right ? "columns" : "rows");
}

static int result(struct op_args *args, char why[WHY_BYTES])
{
	struct view *x = &args->views[X], *b = &args->views[B];

	x->rank = b->rank;
	memcpy(x->shape, b->shape, sizeof x->shape);
	return check_shapes(args, why);
}

static int check(struct op_args *args, char why[WHY_BYTES])
{
	struct view *a = &args->views[A], *b = &args->views[B], *x = &args->views[X];
	bool *flags = args->params.plain.flags;
	int rc;

	if ((rc = check_shapes(args, why)) < 0 || (rc = rules_same_shape(b, "b", x, "x", why)) < 0 ||
	    (rc = rules_outputs(args, why)) < 0 || (rc = spread(a, a, b, why)) < 0)
		return rc;
	linalg_fold((struct view *[]){x, a, b}, 3, 0);
	struct view *const all[] = {a, b, x};
	for (unsigned v = 0; v < 3 && flags[SOLVE_RIGHT]; v++)
		linalg_transpose(all[v]);
	if (flags[SOLVE_UPPER] != flags[SOLVE_RIGHT]) {
		linalg_reverse(a, 3);
		for (unsigned v = 0; v < 3; v++)
			linalg_reverse(all[v], 2);
	}
	flags[SOLVE_UPPER] = flags[SOLVE_RIGHT] = false;
	args->params.plain.counts[LINALG_BEGIN] = 0;
	args->params.plain.counts[LINALG_END] = (uint32_t)x->shape[2];
	return 0;
}

/* Parts read the rows of x before theirs. */
static bool reads_output(const struct op_args *args, unsigned v)
{
	(void)v;
	return linalg_begin(args) > 0;
}

static void cost(const struct op_args *args, struct cost *ret)
{
	const struct view *x = &args->views[X];
	double begin = (double)linalg_begin(args), end = (double)linalg_end(args),
	       real = dtype_components(x->dtype) > 1 ? 4 : 1;

	ret->flops = real * (double)linalg_matrices(x) * (end * end - begin * begin) * (double)x->shape[3];
	ret->bytes = rules_bytes(&args->views[A]) / 2 + rules_bytes(&args->views[B]) + rules_bytes(x);
}

/* ---- The reference ---- */

/* An element of a, or of its conjugate. */
static struct number of_triangle(const struct op_args *args, const struct linalg_matrix *a, uint64_t i,
                                 uint64_t k)
{
	if (i == k && solve_has(args, SOLVE_UNIT))
		return (struct number){1, 0};
	return number_conjugate(linalg_load(a, i, k), solve_has(args, SOLVE_CONJ));
}

/* What element (i, j) of x should be, by those above it. */
static struct number solved(const struct op_args *args, const struct linalg_matrix *a,
                            const struct linalg_matrix *b, const struct linalg_matrix *x, uint64_t i,
                            uint64_t j)
{
	struct number sum = linalg_load(b, i, j);

	for (uint64_t k = 0; k < i; k++)
		sum = linalg_less_product(sum, of_triangle(args, a, i, k), linalg_load(x, k, j));
	return linalg_quotient(sum, of_triangle(args, a, i, i));
}

static void reference(const struct op_args *args)
{
	for (uint64_t matrix = 0; matrix < linalg_matrices(&args->views[X]); matrix++) {
		struct linalg_matrix a = linalg_matrix_of(&args->views[A], matrix),
		                     b = linalg_matrix_of(&args->views[B], matrix),
		                     x = linalg_matrix_of(&args->views[X], matrix);

		for (uint64_t i = linalg_begin(args); i < linalg_end(args); i++)
			for (uint64_t j = 0; j < x.cols; j++)
				linalg_store(&x, i, j, solved(args, &a, &b, &x, i, j));
	}
}

/* ---- What is right ---- */

/*
 * Whether column j of x in float64 has, or is made of, numbers that are not finite or come near the end of the
 * range. BLAS may then spoil more of the column than depends on them, since it computes blocks of rows at once.
 */
static bool may_leave_range(const struct op_args *args, const struct linalg_matrix *a,
                            const struct linalg_matrix *b, uint64_t j)
{
	double largest = dtype_component(b->dtype) == KOPS_F64 ? 1e300 : 1e36;
	struct linalg_matrix from = linalg_block(b, 0, j, b->rows, 1),
	                     x = {calloc(b->rows, sizeof(struct number)), KOPS_C128, b->rows, 1, 1, 1};
	bool leaves = !x.data;

	for (uint64_t i = 0; i < b->rows && !leaves; i++) {
		linalg_store(&x, i, 0, solved(args, a, &from, &x, i, 0));
		leaves = !(linalg_magnitude(linalg_load(&from, i, 0)) < largest) ||
		         linalg_magnitude(of_triangle(args, a, i, i)) < 8 * linalg_smallest(b->dtype);
		for (uint64_t k = 0; k <= i && !leaves; k++)
			leaves = !(linalg_magnitude(of_triangle(args, a, i, k)) *
			               fmax(linalg_magnitude(linalg_load(&x, k, 0)), 1) <
			           largest);
	}
	free(x.data);
	return leaves;
}

/* Substitution leaves a residual of (i + 3) u times the magnitudes of the row's products, in any order; 8 times
 * that covers complex arithmetic. */
static double residual_at(const struct op_args *args, const struct linalg_matrix *a,
                          const struct linalg_matrix *b, const struct linalg_matrix *x, uint64_t i, uint64_t j)
{
	struct number sum = linalg_load(b, i, j);
	double total = linalg_magnitude(sum), largest = 1;

	for (uint64_t k = 0; k <= i; k++) {
		struct number t = of_triangle(args, a, i, k), y = linalg_load(x, k, j);

		sum = linalg_less_product(sum, t, y);
		total += linalg_magnitude(t) * linalg_magnitude(y);
		largest = fmax(largest, fmax(linalg_magnitude(t), linalg_magnitude(y)));
	}
	if (!linalg_is_finite(linalg_load(x, i, j)))
		return may_leave_range(args, a, b, j) ? 0 : (double)INFINITY;
	if (!(total <
	      (double)INFINITY)) /* NaN stays; what becomes of Inf may depend on how a quotient is written */
		return isnan(total) && isnan(linalg_load(b, i, j).re) ? (double)INFINITY : 0;
	return linalg_magnitude(sum) /
	       (8 * (double)(i + 3) *
	        (linalg_roundoff(x->dtype) * total + linalg_smallest(x->dtype) * largest));
}

static double residual(const struct op_args *before, const struct op_args *after, uint64_t row)
{
	const struct view *view = &after->views[X];
	uint64_t matrix = row / view->shape[2], i = row % view->shape[2];
	struct linalg_matrix a = linalg_matrix_of(&before->views[A], matrix),
	                     b = linalg_matrix_of(&before->views[B], matrix),
	                     x = linalg_matrix_of(view, matrix);
	double worst = 0;

	for (uint64_t j = 0; j < x.cols; j++)
		worst = fmax(worst, residual_at(before, &a, &b, &x, i, j));
	return worst;
}

/* ---- Samples ---- */

static bool sample(kops_dtype dtype, struct op_args *args)
{
	if (!op_takes(&op_triangular_solve, dtype))
		return false;
	*args = (struct op_args){.op = &op_triangular_solve};
	args->views[A] = (struct view){.dtype = dtype, .rank = 3, .shape = {2, 47, 47}};
	args->views[B] = args->views[X] = (struct view){.dtype = dtype, .rank = 3, .shape = {2, 47, 21}};
	for (unsigned v = A; v <= X; v++)
		view_make_dense(&args->views[v]);
	return true;
}

/* x is about b over the diagonal, which is above 2 n. */
static double tolerance(const struct op_args *args)
{
	double n = (double)args->views[X].shape[args->views[X].rank - 2];

	return 8 * linalg_roundoff(args->views[X].dtype) / sqrt(n);
}

/* "BATCHxNxCOLUMNS" */
static void of_size(const uint64_t *extents, struct op_args *args)
{
	struct view *a = &args->views[A], *b = &args->views[B];
	bool right = solve_has(args, SOLVE_RIGHT);

	linalg_of_size(extents, args);
	*b = *a;
	b->shape[b->rank - (right ? 2 : 1)] = extents[2];
}

static const struct size_span size_spans[] = {
    {1, 100, (const uint64_t[]){1, 0}},
    {2, 2000, (const uint64_t[]){16, 32, 64, 128, 256, 512, 1024, 0}},
    {1, 2000, (const uint64_t[]){1, 8, 64, 512, 0}},
};

/* ---- Parts ---- */

static uint64_t steps(const struct op_args *args)
{
	return linalg_steps(args->views[X].shape[2], args->views[X].shape[2]);
}

static void step_part(struct op_args *args, unsigned pass, uint64_t first, uint64_t n)
{
	(void)pass;
	linalg_set_part(args, args->views[X].shape[2], args->views[X].shape[2], first, n);
}

static const struct part_axis part_axes[] = {
    {{[A] = PART_NONE, [B] = 3, [X] = 3}, true}, {{0, 0, 0}, false}, {{1, 1, 1}, false}};

const struct op op_triangular_solve = {
    .name = "triangular_solve",
    .title = "solutions of triangular systems",
    .about = "x with a * x = b, or x * a = b, a triangular",
    .notes = "By substitution, so a 0 on the diagonal gives infinities and NaN, as BLAS's trsm does.",
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
    .size_form = "BATCHxNxCOLUMNS",
    .of_size = of_size,
    .size_spans = size_spans,
    .counts_flops = true,
    .bench_shapes = "1x1024x1024,1000x64x64,10000x32x32,1x4096x1,1x4096x64,1x4096x4096,1x8192x8192",
};
