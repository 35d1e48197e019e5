/*
 * softmax: y = softmax(scale * x) over the last axis, or its logarithm; f32, f64, f16 and bf16.
 *
 * After check() both views have rank 4. The last axis is normalised. The three before it number the rows, and
 * are folded if both views allow it: dense tensors become (1, 1, rows, columns). Axes of one index have stride
 * 0. scale is finite, in f32's range, and exact in f32 unless x is f64.
 *
 * Special values are those of plain max, exp and sum. A row with NaN, with +Inf (of scale * x) or of -Inf alone
 * becomes NaN. -Inf elsewhere becomes 0 (-Inf for the logarithm).
 *
 * f64 is computed in f64. Elements of the 16-bit types are first widened to f32 or more, and the result is
 * rounded to them last.
 */
#include <float.h>
#include <math.h>

#include "common/half.h"
#include "common/rules.h"

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
    {.name = "scale",
     .type = ATTRIBUTE_NUMBER,
     .offset = offsetof(struct softmax_params, scale),
     .min = -(double)FLT_MAX,
     .max = (double)FLT_MAX,
     .otherwise = 1,
     .about = "a factor of x"},
    {.name = "log",
     .type = ATTRIBUTE_FLAG,
     .offset = offsetof(struct softmax_params, log),
     .about = "take the logarithm"},
};

static int check(struct op_args *args, char why[WHY_BYTES])
{
	struct view *x = &args->views[X], *y = &args->views[Y];
	struct softmax_params *p = &args->params.softmax;
	int rc;

	if ((rc = rules_rank(x, "x", 1, 4, why)) < 0 || (rc = rules_same_shape(x, "x", y, "y", why)) < 0 ||
	    (rc = rules_outputs(args, why)) < 0)
		return rc;
	if (x->dtype != KOPS_F64)
		p->scale = (double)(float)p->scale;
	p->pass = SOFTMAX_WHOLE;
	p->goes_on = false;
	rules_pad_rank(x, 4);
	rules_pad_rank(y, 4);
	rules_fold((struct view *[]){x, y}, 2, 3);
	return 0;
}

/* Counts scale, subtract, exp, add and divide for each element; a part has four of the five again. */
static void cost(const struct op_args *args, struct cost *ret)
{
	enum softmax_pass pass = args->params.softmax.pass;

	ret->flops = (pass == SOFTMAX_WHOLE ? 5 : 4) * (double)view_elements(&args->views[Y]);
	ret->bytes = rules_bytes(&args->views[X]) + (pass == SOFTMAX_SUM ? 0 : rules_bytes(&args->views[Y]));
}

/*
 * x0: index of the row's first element, relative to the view's first. Relative to -Inf there is no sum: for a
 * row of -Inf alone it is 0, or NaN if there is one.
 */
static struct softmax_partial sum_row(const struct op_args *args, int64_t x0)
{
	const struct view *x = &args->views[X];
	double scale = args->params.softmax.scale, base;
	struct softmax_partial p = {-INFINITY, 0};
	long double sum = 0; /* wider than f64, where many equal terms would all round alike */

	for (int64_t i = 0; i < (int64_t)x->shape[3]; i++)
		p.peak = fmax(p.peak, scale * half_load(x->data, x->dtype, x0 + i * x->strides[3]));
	base = p.peak == -INFINITY ? 0 : p.peak;
	for (int64_t i = 0; i < (int64_t)x->shape[3]; i++)
		sum += (long double)exp(scale * half_load(x->data, x->dtype, x0 + i * x->strides[3]) - base);
	p.sum = (double)sum;
	return p;
}

static struct softmax_partial join(struct softmax_partial a, struct softmax_partial b)
{
	struct softmax_partial high = a.peak >= b.peak ? a : b, low = a.peak >= b.peak ? b : a;

	if (low.sum != 0)
		high.sum += low.sum * (low.peak == high.peak ? 1 : exp(low.peak - high.peak));
	return high;
}

static void write_row(const struct op_args *args, int64_t x0, int64_t y0, const struct softmax_partial *of_row)
{
	const struct view *x = &args->views[X], *y = &args->views[Y];
	const struct softmax_params *p = &args->params.softmax;

	for (int64_t i = 0; i < (int64_t)y->shape[3]; i++) {
		double t = p->scale * half_load(x->data, x->dtype, x0 + i * x->strides[3]) - of_row->peak;
		half_store(y->data, y->dtype, y0 + i * y->strides[3],
		           p->log ? t - log(of_row->sum) : exp(t) / of_row->sum);
	}
}

/* carried: of the row, if it is computed in parts. */
static void reference_row(const struct op_args *args, int64_t x0, int64_t y0, struct softmax_partial *carried)
{
	const struct softmax_params *p = &args->params.softmax;
	struct softmax_partial of_row = p->pass == SOFTMAX_WRITE ? *carried : sum_row(args, x0);

	if (p->pass == SOFTMAX_SUM)
		*carried = p->goes_on ? join(*carried, of_row) : of_row;
	else
		write_row(args, x0, y0, &of_row);
}

static void reference(const struct op_args *args)
{
	const struct view *y = &args->views[Y];
	const int64_t *sx = args->views[X].strides, *sy = y->strides;
	struct softmax_partial *carried = args->carried;
	bool is_part = args->params.softmax.pass != SOFTMAX_WHOLE;

	for (int64_t i = 0; i < (int64_t)y->shape[0]; i++)
		for (int64_t j = 0; j < (int64_t)y->shape[1]; j++)
			for (int64_t k = 0; k < (int64_t)y->shape[2]; k++)
				reference_row(args, i * sx[0] + j * sx[1] + k * sx[2],
				              i * sy[0] + j * sy[1] + k * sy[2], is_part ? carried++ : NULL);
}

/* Of the finite ones. */
static double largest_magnitude(const struct op_args *args, int64_t x0)
{
	const struct view *x = &args->views[X];
	double largest = 0;

	for (int64_t i = 0; i < (int64_t)x->shape[3]; i++) {
		double t =
		    fabs(args->params.softmax.scale * half_load(x->data, x->dtype, x0 + i * x->strides[3]));
		largest = isfinite(t) && t > largest ? t : largest;
	}
	return largest;
}

/*
 * With t = ln of the result and peak = max |scale x| of the row, a result y may be off by
 * u y (16 + 3 |t| + 3 ln(n) + 2 peak), its logarithm by that without y. u: the unit roundoff. 2 peak: a kernel
 * may round scale * x before it subtracts the maximum. 3 |t|: the rounding of t itself, and the argument
 * reduction of exp. In f64 it is a few roundings more, and those of the sum.
 */
static void bounds(const struct op_args *args, uint64_t row, double *ret)
{
	const struct view *x = &args->views[X];
	const struct softmax_params *p = &args->params.softmax;
	int64_t x0 = view_row(x, row);
	const struct softmax_partial known = sum_row(args, x0);
	double peak = largest_magnitude(args, x0), of_row = 3 * log((double)x->shape[3]), u = 0x1p-24;

	if (x->dtype == KOPS_F64) {
		u = 0x1p-53;
		of_row += 32 + rules_sum_roundings(x) + 4 * peak;
	} else {
		of_row += 16 + 2 * peak;
	}
	for (int64_t i = 0; i < (int64_t)x->shape[3]; i++) {
		double t = p->scale * half_load(x->data, x->dtype, x0 + i * x->strides[3]) - known.peak -
		           log(known.sum);
		double off = isfinite(t) ? u * (of_row + 3 * fabs(t)) * (p->log ? 1 : exp(t)) : 0;

		ret[i] = off + rules_flushed(x->dtype);
	}
}

static bool sample_of(kops_dtype dtype, uint64_t rows, uint64_t cols, struct op_args *args)
{
	if (!op_takes(&op_softmax, dtype))
		return false;
	*args = (struct op_args){.op = &op_softmax, .params.softmax = {.scale = 3}};
	for (unsigned i = X; i <= Y; i++) {
		args->views[i] = (struct view){.dtype = dtype, .rank = 4, .shape = {1, 1, rows, cols}};
		view_make_dense(&args->views[i]);
	}
	return true;
}

/* Makes rows longer than one block of threads reads at once. */
static bool sample(kops_dtype dtype, struct op_args *args)
{
	return sample_of(dtype, 9, 1291, args);
}

/* Makes rows longer than one block keeps, which do not all begin at the same alignment. */
static bool large_sample(kops_dtype dtype, struct op_args *args)
{
	return sample_of(dtype, 3, dtype_size(dtype) > 2 ? 40001 : 80003, args);
}

/*
 * Allows for f32 arithmetic and, for the 16-bit types, the rounding of results. On the smaller sample results
 * are about e^(3x) / (1291 * sinh(3) / 3), at most 0.005. On both, logarithms lie above -19.
 */
static double tolerance(const struct op_args *args)
{
	bool log_wanted = args->params.softmax.log;
	double largest = log_wanted ? 19 : 0.005;

	if (args->views[Y].dtype == KOPS_F64)
		return log_wanted ? 1e-14 : 1e-15;
	double result = args->views[Y].dtype == KOPS_F16    ? 0x1p-11
	                : args->views[Y].dtype == KOPS_BF16 ? 0x1p-8
	                                                    : 0;

	return (log_wanted ? 4e-6 : 1e-6) + 2 * result * largest;
}

static uint64_t steps(const struct op_args *args)
{
	return args->views[Y].shape[3];
}

static void step_part(struct op_args *args, unsigned pass, uint64_t first, uint64_t n)
{
	for (unsigned i = X; i <= Y; i++)
		view_narrow(&args->views[i], 3, first, n);
	args->params.softmax.pass = pass == 0 ? SOFTMAX_SUM : SOFTMAX_WRITE;
	args->params.softmax.goes_on = pass == 0 && first > 0;
}

static uint64_t carried_bytes(const struct op_args *args)
{
	return rules_row_bytes(&args->views[Y], sizeof(struct softmax_partial));
}

static const struct part_axis part_axes[] = {{{0, 0}, false}, {{1, 1}, false}, {{2, 2}, false}};

const struct op op_softmax = {
    .name = "softmax",
    .title = "softmax over the last axis",
    .about = "y = softmax(scale * x) over the last axis, or its logarithm",
    .notes = "Where a row of scale * x has NaN or +Inf, or -Inf only, the row of y becomes NaN.",
    .operands = operands,
    .n_operands = sizeof operands / sizeof operands[0],
    .attributes = attributes,
    .n_attributes = sizeof attributes / sizeof attributes[0],
    .last_axis = AXIS_KEPT,
    .part_axes = part_axes,
    .n_part_axes = sizeof part_axes / sizeof part_axes[0],
    .passes = 2,
    .steps = steps,
    .step_part = step_part,
    .carried_bytes = carried_bytes,
    .check = check,
    .cost = cost,
    .reference = reference,
    .bounds = bounds,
    .sample = sample,
    .large_sample = large_sample,
    .tolerance = tolerance,
    .bench_shapes = "64x1024,256x1024,1024x1024,4096x1024,16384x1024,65536x1024,16384x4096,1024x131072,"
                    "128x1048576,262144x1024,524288x1024",
};
