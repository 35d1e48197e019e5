/*
 * unary: y = f(scale · x), limited to [low, high], element by element; f32, f64, f16 and bf16. f is one of the
 * functions of elementwise/unary_function.h.
 *
 * After check() both views have rank 4, and the three axes before the last are folded if both views allow it:
 * dense tensors become (1, 1, rows, columns). scale, low and high are exact in the type that is computed in,
 * which is f32 but for f64. scale · x is rounded to it, so it may be infinite.
 */
#include <float.h>
#include <math.h>

#include "common/half.h"
#include "common/rules.h"
#include "elementwise/unary_function.h"

enum { X, Y };

static const struct op_operand operands[] = {
    [X] = {.name = "x", .dtypes = RULES_FLOATS, .about = "1 to 4 axes"},
    [Y] = {.name = "y",
           .role = OPERAND_OUTPUT,
           .dtypes = RULES_FLOATS,
           .in_place = 1u << X,
           .about = "x's shape"},
};

static const struct op_attribute attributes[] = {
    {.name = "function",
     .type = ATTRIBUTE_CHOICE,
     .offset = offsetof(struct unary_params, function),
     .otherwise = UNARY_NONE,
     .choices = unary_names,
     .n_choices = UNARY_FUNCTIONS,
     .about = "what is computed of scale * x"},
    {.name = "scale",
     .type = ATTRIBUTE_NUMBER,
     .offset = offsetof(struct unary_params, scale),
     .min = -(double)FLT_MAX,
     .max = (double)FLT_MAX,
     .otherwise = 1,
     .about = "a factor of x"},
    {.name = "low",
     .type = ATTRIBUTE_NUMBER,
     .offset = offsetof(struct unary_params, low),
     .min = -(double)INFINITY,
     .max = (double)INFINITY,
     .otherwise = -(double)INFINITY,
     .about = "the least that y may be"},
    {.name = "high",
     .type = ATTRIBUTE_NUMBER,
     .offset = offsetof(struct unary_params, high),
     .min = -(double)INFINITY,
     .max = (double)INFINITY,
     .otherwise = (double)INFINITY,
     .about = "the most that y may be"},
};

/* Rounds to f32; beyond its range is infinite. */
static double single(double v)
{
	return fabs(v) > (double)FLT_MAX ? copysign(INFINITY, v) : (double)(float)v;
}

static void round_params(struct unary_params *p, kops_dtype dtype)
{
	p->is_single = dtype != KOPS_F64;
	if (!p->is_single)
		return;
	p->scale = single(p->scale);
	p->low = single(p->low);
	p->high = single(p->high);
}

static int check(struct op_args *args, char why[WHY_BYTES])
{
	struct view *x = &args->views[X], *y = &args->views[Y];
	int rc;

	if ((rc = rules_rank(x, "x", 1, 4, why)) < 0 || (rc = rules_same_shape(x, "x", y, "y", why)) < 0 ||
	    (rc = rules_outputs(args, why)) < 0)
		return rc;
	round_params(&args->params.unary, x->dtype);
	rules_pad_rank(x, 4);
	rules_pad_rank(y, 4);
	rules_fold((struct view *[]){x, y}, 2, 3);
	return 0;
}

/* Arithmetic per element, about. */
static double operations(enum unary_function function)
{
	return function <= UNARY_RELU || function == UNARY_ABS ? 4 : 24;
}

static void cost(const struct op_args *args, struct cost *ret)
{
	const struct view *y = &args->views[Y];

	ret->flops = operations(args->params.unary.function) * (double)view_elements(y);
	ret->bytes = rules_bytes(&args->views[X]) + rules_bytes(y);
}

/* What goes into the function. */
static double scaled(const struct unary_params *p, double x)
{
	return p->is_single ? single(p->scale * x) : p->scale * x;
}

static double limited(const struct unary_params *p, double y)
{
	double least = y < p->low ? p->low : y;

	return least > p->high ? p->high : least;
}

/* x0, y0: index of the row's first element, relative to the view's first. */
static void reference_row(const struct op_args *args, int64_t x0, int64_t y0)
{
	const struct view *x = &args->views[X], *y = &args->views[Y];
	const struct unary_params *p = &args->params.unary;

	for (int64_t i = 0; i < (int64_t)y->shape[3]; i++) {
		double v = scaled(p, half_load(x->data, x->dtype, x0 + i * x->strides[3]));

		half_store(y->data, y->dtype, y0 + i * y->strides[3], limited(p, unary_of(p->function, v)));
	}
}

static void reference(const struct op_args *args)
{
	const struct view *x = &args->views[X], *y = &args->views[Y];
	uint64_t rows = y->shape[3] ? view_elements(y) / y->shape[3] : 0;

	for (uint64_t row = 0; row < rows; row++)
		reference_row(args, view_row(x, row), view_row(y, row));
}

/*
 * Kernels compute the function to within 16 u, of what may be off by 4 u, where u is the unit roundoff. Φ of
 * gelu and gelu_tanh may be off by u in f32, however small it is. Functions without roundings are exact.
 */
static double slack(const struct unary_params *p, double v, double u)
{
	double y = unary_of(p->function, v), of_v = 0;

	if (p->function <= UNARY_RELU || p->function == UNARY_ABS || !isfinite(y) || !isfinite(v))
		return 0;
	for (int sign = -1; sign <= 1; sign += 2)
		of_v = fmax(of_v, fabs(unary_of(p->function, v * (1 + sign * 4 * u)) - y));
	if (p->is_single && (p->function == UNARY_GELU || p->function == UNARY_GELU_TANH))
		of_v += u * fabs(v);
	return of_v + 16 * u * fabs(y) + rules_flushed(p->is_single ? KOPS_F32 : KOPS_F64) * fmax(1, fabs(v));
}

/* A bound of 0 would allow no rounding to 16 bits. */
static void bounds(const struct op_args *args, uint64_t row, double *ret)
{
	const struct view *x = &args->views[X];
	const struct unary_params *p = &args->params.unary;
	double u = p->is_single ? 0x1p-24 : 0x1p-53,
	       least = dtype_size(x->dtype) == 2 ? rules_flushed(KOPS_F32) : 0;
	int64_t x0 = view_row(x, row);

	for (int64_t i = 0; i < (int64_t)x->shape[3]; i++)
		ret[i] = least + slack(p, scaled(p, half_load(x->data, x->dtype, x0 + i * x->strides[3])), u);
}

/* In the form that check() leaves. */
static bool sample(kops_dtype dtype, struct op_args *args)
{
	if (!op_takes(&op_unary, dtype))
		return false;
	*args = (struct op_args){.op = &op_unary};
	args->params.unary =
	    (struct unary_params){.function = UNARY_GELU, .scale = 1.25, .low = -0.125, .high = 0.75};
	round_params(&args->params.unary, dtype);
	for (unsigned i = X; i <= Y; i++) {
		args->views[i] = (struct view){.dtype = dtype, .rank = 4, .shape = {1, 1, 19, 1029}};
		view_make_dense(&args->views[i]);
	}
	return true;
}

/* Results of the sample lie within [-1, 1]. */
static double tolerance(const struct op_args *args)
{
	kops_dtype dtype = args->views[Y].dtype;
	double half_unit = dtype == KOPS_F16 ? 0x1p-11 : dtype == KOPS_BF16 ? 0x1p-8 : 0;

	return half_unit + (dtype == KOPS_F64 ? 0x1p-48 : 0x1p-19);
}

static const struct part_axis part_axes[] = {
    {{0, 0}, false}, {{1, 1}, false}, {{2, 2}, false}, {{3, 3}, false}};

const struct op op_unary = {
    .name = "unary",
    .title = "functions and limits, element by element",
    .about = "y = function(scale * x), limited to [low, high]",
    .notes =
        "NaN stays NaN. Where low is above high, y is high. Types but f64 are computed in f32, and low, high "
        "and scale * x are rounded to it. sigmoid is 1 / (1 + exp(-v)), silu v * sigmoid(v), gelu v * "
        "Phi(v), and gelu_tanh its approximation by tanh; the last three are NaN at -Inf. log and sqrt of "
        "negative numbers are NaN.",
    .operands = operands,
    .n_operands = sizeof operands / sizeof operands[0],
    .attributes = attributes,
    .n_attributes = sizeof attributes / sizeof attributes[0],
    .part_axes = part_axes,
    .n_part_axes = sizeof part_axes / sizeof part_axes[0],
    .check = check,
    .cost = cost,
    .reference = reference,
    .bounds = bounds,
    .sample = sample,
    .tolerance = tolerance,
};
