/*
 * reduce: y = the sum, the largest, the mean, the smallest or the product of x over its last axis; f32, f64,
 * f16 and bf16; sums and means also of c64 and c128.
 *
 * y has x's shape without the last axis, or with one index there. After check() both views have rank 4. The
 * last axis is reduced, and has one index in y. The three before it number the rows, and are folded if both
 * views allow it: dense tensors become (1, 1, rows, columns). Axes of one index have stride 0. Complex views
 * become views of their parts, with twice the rows.
 *
 * A mean is a sum times params.scale. Without elements the sum is 0, the product 1, the mean NaN, the largest
 * -Inf and the smallest Inf. A NaN among the elements makes each of them NaN. Sums of f64 are made in f64;
 * others in f32 or more, and rounded once. Products are made in f64.
 */
#include <float.h>
#include <math.h>

#include "common/half.h"
#include "common/rules.h"
#include "reduce/join.h"

enum { X, Y };

static const struct op_operand operands[] = {
    [X] = {.name = "x",
           .dtypes = RULES_FLOATS | RULES_COMPLEX,
           .about = "1 to 4 axes, of complex numbers 1 to 3"},
    [Y] = {.name = "y",
           .role = OPERAND_OUTPUT,
           .dtypes = RULES_FLOATS | RULES_COMPLEX,
           .about = "x's shape without the last axis, or with 1 there"},
};

static const char *const kinds[] = {
    [KOPS_SUM] = "sum", [KOPS_MAX] = "max", [KOPS_MEAN] = "mean", [KOPS_MIN] = "min", [KOPS_PROD] = "prod"};

static const struct op_attribute attributes[] = {
    {.name = "kind",
     .type = ATTRIBUTE_CHOICE,
     .offset = offsetof(struct reduce_params, kind),
     .otherwise = KOPS_SUM,
     .choices = kinds,
     .n_choices = sizeof kinds / sizeof kinds[0],
     .about = "what to compute of each row"},
};

/* The mean of no elements is 0 · Inf. */
static double scale_of(const struct view *x, kops_reduction kind)
{
	double n = (double)x->shape[x->rank - 1];

	if (kind != KOPS_MEAN)
		return 1;
	return n > 0 ? 1 / n : (double)INFINITY;
}

/* Sums and means of complex numbers are those of their parts. */
static int check_kind(const struct op_args *args, char why[WHY_BYTES])
{
	kops_dtype dtype = args->views[X].dtype;
	kops_reduction kind = args->params.reduce.kind;

	if (dtype_kind(dtype) != DTYPE_COMPLEX || kind == KOPS_SUM || kind == KOPS_MEAN)
		return 0;
	return rules_refuse(why, KOPS_E_INVALID,
	                    "x is %s: complex numbers have a sum and a mean, but no %s here", dtype_name(dtype),
	                    kinds[kind]);
}

static int check(struct op_args *args, char why[WHY_BYTES])
{
	struct view *x = &args->views[X], *y = &args->views[Y];
	struct reduce_params *p = &args->params.reduce;
	int rc;

	if ((rc = check_kind(args, why)) < 0 || (rc = rules_reduced(x, y, why)) < 0 ||
	    (rc = rules_outputs(args, why)) < 0)
		return rc;
	p->scale = scale_of(x, p->kind);
	p->goes_on = false;
	rules_pad_rank(x, 4);
	rules_pad_rank(y, 4);
	rules_fold((struct view *[]){y, x}, 2, 3);
	if (dtype_kind(x->dtype) == DTYPE_COMPLEX)
		return rules_take_parts((struct view *[]){y, x}, 2, 2, why);
	return 0;
}

static bool reads_output(const struct op_args *args, unsigned v)
{
	(void)v;
	return args->params.reduce.goes_on;
}

static void cost(const struct op_args *args, struct cost *ret)
{
	ret->flops = (double)view_elements(&args->views[X]);
	ret->bytes = rules_bytes(&args->views[X]) + rules_bytes(&args->views[Y]);
}

/* Sums and products are made in more than f64 has, to judge those of f64. */
static long double join_wide(kops_reduction kind, long double result, double v)
{
	if (reduce_is_extreme(kind))
		return (long double)reduce_join(kind, v, (double)result);
	return kind == KOPS_PROD ? result * (long double)v : result + (long double)v;
}

/* x0: index of the row's first element, relative to the view's first. */
static double reduce_row(const struct op_args *args, int64_t x0)
{
	const struct view *x = &args->views[X];
	kops_reduction kind = args->params.reduce.kind;
	long double result = (long double)reduce_nothing(kind);

	for (int64_t i = 0; i < (int64_t)x->shape[3]; i++)
		result = join_wide(kind, result, half_load(x->data, x->dtype, x0 + i * x->strides[3]));
	return (double)result;
}

static void reference_row(const struct op_args *args, int64_t x0, int64_t y0)
{
	const struct view *y = &args->views[Y];
	const struct reduce_params *p = &args->params.reduce;
	double result = reduce_row(args, x0) * p->scale;

	if (p->goes_on)
		result = reduce_join(p->kind, half_load(y->data, y->dtype, y0), result);
	half_store(y->data, y->dtype, y0, result);
}

static void reference(const struct op_args *args)
{
	const struct view *y = &args->views[Y];
	const int64_t *sx = args->views[X].strides, *sy = y->strides;

	for (int64_t i = 0; i < (int64_t)y->shape[0]; i++)
		for (int64_t j = 0; j < (int64_t)y->shape[1]; j++)
			for (int64_t k = 0; k < (int64_t)y->shape[2]; k++)
				reference_row(args, i * sx[0] + j * sx[1] + k * sx[2],
				              i * sy[0] + j * sy[1] + k * sy[2]);
}

/* Beyond it, parts of a cut sum, which go on in f32 from what is in y, may overflow on their way. A mean is
 * divided before. */
static double largest_sum(const struct op_args *args)
{
	if (args->views[X].dtype == KOPS_F64)
		return DBL_MAX / 4;
	return args->params.reduce.kind == KOPS_SUM ? 0x1.fep127 : INFINITY;
}

/*
 * Returns true if the order decides whether a product leaves the range on its way: it has both large and small
 * factors. Parts of a cut product go on in f32 from what is in y.
 */
static bool is_ambiguous(const struct op_args *args, int64_t x0)
{
	const struct view *x = &args->views[X];
	double range = x->dtype == KOPS_F64 ? 1000 : 120, above = 0, below = 0;
	bool has_zero = false;

	for (int64_t i = 0; i < (int64_t)x->shape[3]; i++) {
		double power = log2(fabs(half_load(x->data, x->dtype, x0 + i * x->strides[3])));

		has_zero |= power == -(double)INFINITY;
		above += power > 0 ? power : 0;
		below -= power < 0 && isfinite(power) ? power : 0;
	}
	return (above > range && (below > 1 || has_zero)) || (below > range && above > 1);
}

/* Returns what errors of the row are relative to: the sum of |x|, of a mean that times 1 / n; or the product.
 */
static double magnitude(const struct op_args *args, int64_t x0, double result)
{
	const struct view *x = &args->views[X];
	double sum = 0;

	if (args->params.reduce.kind == KOPS_PROD)
		return fabs(result);
	for (int64_t i = 0; i < (int64_t)x->shape[3]; i++)
		sum += fabs(half_load(x->data, x->dtype, x0 + i * x->strides[3]));
	return sum;
}

/*
 * A sum or mean may be off by 17 u T, T the sum of |x| times the mean's 1 / n, u the unit roundoff: kernels add
 * some hundred terms in f32 before float64 takes over, and their roundings add up like the root of that; one is
 * that of the result. In f64 it is the roundings of the sum more. T of a product is its magnitude: its few
 * roundings in f32 are those of parts.
 */
static void bounds(const struct op_args *args, uint64_t row, double *ret)
{
	const struct view *x = &args->views[X];
	const struct reduce_params *p = &args->params.reduce;
	int64_t x0 = view_row(x, row);
	double u = x->dtype == KOPS_F64 ? 0x1p-53 : 0x1p-24, result = reduce_row(args, x0);
	double total = magnitude(args, x0, result);

	if (p->kind == KOPS_PROD && !isnan(result) && is_ambiguous(args, x0))
		*ret = -1;
	else if (reduce_is_extreme(p->kind) || !isfinite(result * p->scale))
		*ret = 0;
	else if (total > largest_sum(args))
		*ret = -1;
	else
		*ret = (17 + rules_sum_roundings(x)) * u * total * p->scale + rules_flushed(x->dtype);
}

static bool sample_of(kops_dtype dtype, bool large, struct op_args *args)
{
	*args = (struct op_args){.op = &op_reduce, .params.reduce = {.kind = KOPS_MEAN}};
	rules_reduced_sample(args, dtype, dtype, large);
	return op_takes(&op_reduce, dtype) && dtype_kind(dtype) != DTYPE_COMPLEX;
}

static bool sample(kops_dtype dtype, struct op_args *args)
{
	return sample_of(dtype, false, args);
}

static bool large_sample(kops_dtype dtype, struct op_args *args)
{
	return sample_of(dtype, true, args);
}

/*
 * Means of n numbers from [-1, 1] stay below 8 / sqrt(3 n). Allows for f32 arithmetic and the rounding of the
 * result.
 */
static double tolerance(const struct op_args *args)
{
	double largest_mean = 8 / sqrt(3 * (double)args->views[X].shape[3]);
	kops_dtype dtype = args->views[Y].dtype;
	double half_unit = dtype == KOPS_F16 ? 0x1p-11 : dtype == KOPS_BF16 ? 0x1p-8 : 0x1p-24;

	if (dtype == KOPS_F64)
		return largest_mean * 0x1p-43;
	return largest_mean * (2 * half_unit + 0x1p-20);
}

static uint64_t steps(const struct op_args *args)
{
	return args->views[X].shape[3];
}

/* The largest and the smallest element need no rounding, so only sums and products carry f32. */
static uint64_t carried_bytes(const struct op_args *args)
{
	return reduce_is_extreme(args->params.reduce.kind) ? 0 : rules_wide_bytes(args);
}

static void step_part(struct op_args *args, unsigned pass, uint64_t first, uint64_t n)
{
	view_narrow(&args->views[X], 3, first, n);
	args->params.reduce.goes_on |= first > 0;
	if (!reduce_is_extreme(args->params.reduce.kind))
		rules_widen(args);
	(void)pass;
}

static const struct part_axis part_axes[] = {{{0, 0}, false}, {{1, 1}, false}, {{2, 2}, false}};

const struct op op_reduce = {
    .name = "reduce",
    .title = "sum, max, mean, min or product over the last axis",
    .about = "y = the sum, the largest, the mean, the smallest or the product of x over its last axis",
    .notes =
        "Of no element the sum is 0, the product 1, the largest -Inf, the smallest Inf and the mean NaN. A NaN "
        "among the elements gives NaN. A mean of finite numbers is finite, even if their sum is beyond the "
        "type's range. Such a sum is infinite, and may be where only a part of it is. So may a product, which "
        "may also be 0 where a part of it is too small. Products are made in f64. "
        "Complex numbers have sums and means.",
    .operands = operands,
    .n_operands = sizeof operands / sizeof operands[0],
    .attributes = attributes,
    .n_attributes = sizeof attributes / sizeof attributes[0],
    .last_axis = AXIS_DROPPED,
    .part_axes = part_axes,
    .n_part_axes = sizeof part_axes / sizeof part_axes[0],
    .passes = 1,
    .steps = steps,
    .step_part = step_part,
    .carried_bytes = carried_bytes,
    .check = check,
    .result = rules_reduced_result,
    .reads_output = reads_output,
    .cost = cost,
    .reference = reference,
    .bounds = bounds,
    .sample = sample,
    .large_sample = large_sample,
    .tolerance = tolerance,
    .bench_shapes = "64x1024,256x1024,1024x1024,4096x1024,16384x1024,65536x1024,4194304x16,4096x16384,"
                    "64x1048576,262144x1024,1048576x1024",
};
