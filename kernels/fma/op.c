/*
 * fma: y = x put `steps` times through v = alpha * v + beta; f32, f64. What the arithmetic units of a device
 * can do at most: the ceiling that `kops-bench` measures products against.
 *
 * After check() both views have rank 4 and one shape, the axes sorted by falling stride of y and folded
 * together where both views allow. alpha and beta are exact in the views' type and finite.
 */
#include <float.h>
#include <math.h>

#include "common/half.h"
#include "common/rules.h"

enum { X, Y };

#define DTYPES (DTYPE_BIT(KOPS_F32) | DTYPE_BIT(KOPS_F64))

static const struct op_operand operands[] = {
    [X] = {.name = "x", .dtypes = DTYPES, .about = "1 to 4 axes"},
    [Y] = {.name = "y",
           .role = OPERAND_OUTPUT,
           .dtypes = DTYPES,
           .in_place = 1u << X,
           .about = "x's shape; may be x"},
};

static const struct op_attribute attributes[] = {
    {.name = "alpha",
     .type = ATTRIBUTE_NUMBER,
     .offset = offsetof(struct fma_params, alpha),
     .takes_nan = true,
     .min = -(double)INFINITY,
     .max = (double)INFINITY,
     .about = "what v is multiplied by"},
    {.name = "beta",
     .type = ATTRIBUTE_NUMBER,
     .offset = offsetof(struct fma_params, beta),
     .takes_nan = true,
     .min = -(double)INFINITY,
     .max = (double)INFINITY,
     .about = "what is added to it"},
    {.name = "steps",
     .type = ATTRIBUTE_COUNT,
     .offset = offsetof(struct fma_params, steps),
     .max = UINT32_MAX,
     .about = "how often; 0 copies"},
};

static int check_factor(double *factor, const char *name, kops_dtype dtype, char why[WHY_BYTES])
{
	double largest = dtype == KOPS_F64 ? DBL_MAX : (double)FLT_MAX;

	if (!isfinite(*factor) || fabs(*factor) > largest)
		return rules_refuse(why, KOPS_E_INVALID, "%s is %g; it must be a finite %s number", name,
		                    *factor, dtype_name(dtype));
	if (dtype == KOPS_F32)
		*factor = (double)(float)*factor;
	return 0;
}

static int check(struct op_args *args, char why[WHY_BYTES])
{
	struct view *x = &args->views[X], *y = &args->views[Y];
	struct view *const both[] = {x, y};
	int rc;

	if ((rc = rules_rank(x, "x", 1, 4, why)) < 0 || (rc = rules_same_shape(x, "x", y, "y", why)) < 0 ||
	    (rc = check_factor(&args->params.fma.alpha, "alpha", x->dtype, why)) < 0 ||
	    (rc = check_factor(&args->params.fma.beta, "beta", x->dtype, why)) < 0 ||
	    (rc = rules_outputs(args, why)) < 0)
		return rc;
	rules_pad_rank(x, 4);
	rules_pad_rank(y, 4);
	rules_order(both, 2);
	rules_fold(both, 2, 4);
	return 0;
}

static void cost(const struct op_args *args, struct cost *ret)
{
	ret->flops = 2.0 * args->params.fma.steps * (double)view_elements(&args->views[Y]);
	ret->bytes = rules_bytes(&args->views[X]) + rules_bytes(&args->views[Y]);
}

static double iterate(double v, const struct fma_params *p)
{
	for (uint32_t s = 0; s < p->steps; s++)
		v = p->alpha * v + p->beta;
	return v;
}

static void reference(const struct op_args *args)
{
	const struct view *x = &args->views[X], *y = &args->views[Y];
	const int64_t *sx = x->strides, *sy = y->strides;

	for (int64_t i = 0; i < (int64_t)y->shape[0]; i++)
		for (int64_t j = 0; j < (int64_t)y->shape[1]; j++)
			for (int64_t k = 0; k < (int64_t)y->shape[2]; k++)
				for (int64_t l = 0; l < (int64_t)y->shape[3]; l++)
					half_store(
					    y->data, y->dtype, i * sy[0] + j * sy[1] + k * sy[2] + l * sy[3],
					    iterate(half_load(x->data, x->dtype,
					                      i * sx[0] + j * sx[1] + k * sx[2] + l * sx[3]),
					            &args->params.fma));
}

/* In the form that check() leaves. */
static bool sample(kops_dtype dtype, struct op_args *args)
{
	if (!op_takes(&op_fma, dtype))
		return false;
	*args = (struct op_args){.op = &op_fma, .params.fma = {.alpha = -0.75, .beta = 0.375, .steps = 37}};
	for (unsigned i = X; i <= Y; i++)
		args->views[i] =
		    (struct view){.dtype = dtype, .rank = 4, .shape = {1, 1, 1, 5003}, .strides = {0, 0, 0, 1}};
	return true;
}

/* |v| stays below 2, a rounding is half a unit, and alpha makes a rounding fade: 1 + 0.75 + … = 4. */
static double tolerance(const struct op_args *args)
{
	return args->views[Y].dtype == KOPS_F64 ? 8 * 0x1p-53 : 8 * 0x1p-24;
}

static uint64_t steps(const struct op_args *args)
{
	return args->params.fma.steps;
}

static void step_part(struct op_args *args, unsigned pass, uint64_t first, uint64_t n)
{
	args->params.fma.steps = (uint32_t)n;
	if (first > 0)
		args->views[X] = args->views[Y];
	(void)pass;
}

static const struct part_axis part_axes[] = {
    {{0, 0}, false}, {{1, 1}, false}, {{2, 2}, false}, {{3, 3}, false}};

const struct op op_fma = {
    .name = "fma",
    .about = "y = x put `steps` times through v = alpha * v + beta",
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
    .cost = cost,
    .reference = reference,
    .sample = sample,
    .tolerance = tolerance,
};
