/*
 * softmax: y = softmax(scale * x + mask) over the last axis, or its logarithm; f32, f64, f16 and bf16.
 *
 * After check() all views have rank 4; a mask has x's shape, with stride 0 where it is repeated. The last axis
 * is normalised. The three before it number the rows, and are folded if all views allow it: dense tensors
 * become (1, 1, rows, columns). Axes of one index have stride 0. scale is finite, in f32's range, and exact in
 * f32 unless x is f64.
 *
 * Special values are those of plain max, exp and sum. A row with NaN, with +Inf (of scale * x) or of -Inf alone
 * becomes NaN. -Inf elsewhere becomes 0 (-Inf for the logarithm). With a mask a row of -Inf alone is 0 as well
 * (-Inf): a row of which everything is masked adds nothing to what is made of it.
 *
 * f64 is computed in f64. Elements of the 16-bit types are first widened to f32 or more, and the result is
 * rounded to them last.
 */
#include <float.h>
#include <math.h>

#include "common/half.h"
#include "common/rules.h"
#include "softmax/operands.h"

enum { X = SOFTMAX_X, MASK = SOFTMAX_MASK, Y = SOFTMAX_Y };

static const struct op_operand operands[] = {
    [X] = {.name = "x", .dtypes = RULES_FLOATS, .about = "1 to 4 axes"},
    [MASK] = {.name = "mask",
              .is_optional = true,
              .is_extra = true,
              .dtypes = RULES_FLOATS,
              .about = "x's shape; extents of 1, and missing leading ones, are repeated; zeros if absent"},
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

/* Repeats the mask to x's shape, with rank 4. */
static int spread_mask(struct op_args *args, char why[WHY_BYTES])
{
	struct view *mask = &args->views[MASK];
	int rc = 0;

	if (softmax_is_masked(args) && (rc = rules_rank(mask, "mask", 1, 4, why)) == 0)
		rc = rules_spread(mask, "mask", &args->views[X], "x", 4, why);
	return rc;
}

static int result(struct op_args *args, char why[WHY_BYTES])
{
	struct op_args trial = *args;
	int rc = rules_rank(&args->views[X], "x", 1, 4, why);

	return rc < 0 ? rc : spread_mask(&trial, why);
}

static int check(struct op_args *args, char why[WHY_BYTES])
{
	struct view *x = &args->views[X], *y = &args->views[Y];
	struct softmax_params *p = &args->params.softmax;
	int rc;

	if ((rc = rules_rank(x, "x", 1, 4, why)) < 0 || (rc = rules_same_shape(x, "x", y, "y", why)) < 0 ||
	    (rc = rules_outputs(args, why)) < 0 || (rc = spread_mask(args, why)) < 0)
		return rc;
	if (x->dtype != KOPS_F64)
		p->scale = (double)(float)p->scale;
	p->pass = SOFTMAX_WHOLE;
	p->goes_on = false;
	rules_pad_rank(x, 4);
	rules_pad_rank(y, 4);
	rules_fold((struct view *[]){x, y, &args->views[MASK]}, softmax_is_masked(args) ? 3 : 2, 3);
	return 0;
}

/* Counts scale, subtract, exp, add and divide for each element; a part has four of the five again. A mask is
 * one more addition, each time. */
static void cost(const struct op_args *args, struct cost *ret)
{
	enum softmax_pass pass = args->params.softmax.pass;

	double added = softmax_is_masked(args);

	ret->flops = ((pass == SOFTMAX_WHOLE ? 5 : 4) + added) * (double)view_elements(&args->views[Y]);
	ret->bytes = rules_bytes(&args->views[X]) + added * rules_bytes(&args->views[MASK]) +
	             (pass == SOFTMAX_SUM ? 0 : rules_bytes(&args->views[Y]));
}

/* Indices of a row's first elements, relative to the views' first. */
struct row {
	int64_t x, mask, y;
};

static struct row row_of(const struct op_args *args, uint64_t i)
{
	return (struct row){view_row(&args->views[X], i),
	                    softmax_is_masked(args) ? view_row(&args->views[MASK], i) : 0,
	                    view_row(&args->views[Y], i)};
}

/* Returns scale * x + mask in column i. */
static double element(const struct op_args *args, const struct row *row, int64_t i)
{
	const struct view *x = &args->views[X], *mask = &args->views[MASK];
	double scaled = args->params.softmax.scale * half_load(x->data, x->dtype, row->x + i * x->strides[3]);

	return softmax_is_masked(args)
	           ? scaled + half_load(mask->data, mask->dtype, row->mask + i * mask->strides[3])
	           : scaled;
}

/* Relative to -Inf there is no sum: for a row of -Inf alone it is 0, or NaN if there is one. */
static struct softmax_partial sum_row(const struct op_args *args, const struct row *row)
{
	const struct view *x = &args->views[X];
	double base;
	struct softmax_partial p = {-INFINITY, 0};
	long double sum = 0; /* wider than f64, where many equal terms would all round alike */

	for (int64_t i = 0; i < (int64_t)x->shape[3]; i++)
		p.peak = fmax(p.peak, element(args, row, i));
	base = p.peak == -INFINITY ? 0 : p.peak;
	for (int64_t i = 0; i < (int64_t)x->shape[3]; i++)
		sum += (long double)exp(element(args, row, i) - base);
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

/* Relative to which a row's results are computed. What is 0 with a mask is 0 relative to anything. */
static struct softmax_partial base_of(const struct op_args *args, struct softmax_partial of_row)
{
	bool is_nothing = softmax_is_masked(args) && of_row.peak == -INFINITY && of_row.sum == 0;

	return is_nothing ? (struct softmax_partial){0, 1} : of_row;
}

static void write_row(const struct op_args *args, const struct row *row, struct softmax_partial of_row)
{
	const struct view *y = &args->views[Y];
	const struct softmax_partial base = base_of(args, of_row);

	for (int64_t i = 0; i < (int64_t)y->shape[3]; i++) {
		double t = element(args, row, i) - base.peak;
		half_store(y->data, y->dtype, row->y + i * y->strides[3],
		           args->params.softmax.log ? t - log(base.sum) : exp(t) / base.sum);
	}
}

/* carried: of the row, if it is computed in parts. */
static void reference_row(const struct op_args *args, uint64_t i, struct softmax_partial *carried)
{
	const struct softmax_params *p = &args->params.softmax;
	struct row row = row_of(args, i);
	struct softmax_partial of_row = p->pass == SOFTMAX_WRITE ? *carried : sum_row(args, &row);

	if (p->pass == SOFTMAX_SUM)
		*carried = p->goes_on ? join(*carried, of_row) : of_row;
	else
		write_row(args, &row, of_row);
}

static void reference(const struct op_args *args)
{
	const uint64_t *shape = args->views[Y].shape;
	struct softmax_partial *carried = args->carried;
	bool is_part = args->params.softmax.pass != SOFTMAX_WHOLE;

	for (uint64_t i = 0, rows = shape[0] * shape[1] * shape[2]; i < rows; i++)
		reference_row(args, i, is_part ? carried++ : NULL);
}

/* Of the finite ones, before and after the mask is added. */
static double largest_magnitude(const struct op_args *args, const struct row *row)
{
	const struct view *x = &args->views[X];
	double largest = 0;

	for (int64_t i = 0; i < (int64_t)x->shape[3]; i++) {
		double t = fabs(element(args, row, i));
		double scaled =
		    fabs(args->params.softmax.scale * half_load(x->data, x->dtype, row->x + i * x->strides[3]));
		largest = isfinite(t) && t > largest ? t : largest;
		largest = isfinite(scaled) && scaled > largest ? scaled : largest;
	}
	return largest;
}

/*
 * With t = ln of the result and peak = max |scale x| of the row, a result y may be off by
 * u y (16 + 3 |t| + 3 ln(n) + 2 peak), its logarithm by that without y. u: the unit roundoff. 2 peak: a kernel
 * may round scale * x before it subtracts the maximum; with a mask it does so twice more. 3 |t|: the rounding
 * of t itself, and the argument reduction of exp. In f64 it is a few roundings more, and those of the sum.
 */
static void bounds(const struct op_args *args, uint64_t row, double *ret)
{
	const struct view *x = &args->views[X];
	const struct softmax_params *p = &args->params.softmax;
	const struct row place = row_of(args, row);
	const struct softmax_partial known = base_of(args, sum_row(args, &place));
	double peak = largest_magnitude(args, &place), of_row = 3 * log((double)x->shape[3]), u = 0x1p-24;

	if (x->dtype == KOPS_F64) {
		u = 0x1p-53;
		of_row += 32 + rules_sum_roundings(x) + 4 * peak;
	} else {
		of_row += 16 + 2 * peak;
	}
	if (softmax_is_masked(args))
		of_row += 4 * peak;
	for (int64_t i = 0; i < (int64_t)x->shape[3]; i++) {
		double t = element(args, &place, i) - known.peak - log(known.sum);
		double off = isfinite(t) ? u * (of_row + 3 * fabs(t)) * (p->log ? 1 : exp(t)) : 0;

		ret[i] = off + rules_flushed(x->dtype);
		/* scale * x + mask may leave the range of f32, and not that of f64. */
		if (softmax_is_masked(args) && peak > (x->dtype == KOPS_F64 ? DBL_MAX : (double)FLT_MAX) / 4)
			ret[i] = -1;
	}
}

static bool sample_of(kops_dtype dtype, uint64_t rows, uint64_t cols, struct op_args *args)
{
	if (!op_takes(&op_softmax, dtype))
		return false;
	*args = (struct op_args){.op = &op_softmax, .params.softmax = {.scale = 3}};
	for (unsigned i = X; i <= Y; i += Y - X) {
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
		if (!view_is_absent(&args->views[i]))
			view_narrow(&args->views[i], 3, first, n);
	args->params.softmax.pass = pass == 0 ? SOFTMAX_SUM : SOFTMAX_WRITE;
	args->params.softmax.goes_on = pass == 0 && first > 0;
}

static uint64_t carried_bytes(const struct op_args *args)
{
	return rules_row_bytes(&args->views[Y], sizeof(struct softmax_partial));
}

static const struct part_axis part_axes[] = {{{0, 0, 0}, false}, {{1, 1, 1}, false}, {{2, 2, 2}, false}};

const struct op op_softmax = {
    .name = "softmax",
    .title = "softmax over the last axis",
    .about = "y = softmax(scale * x + mask) over the last axis, or its logarithm",
    .notes = "Where a row of scale * x + mask has NaN or +Inf, the row of y becomes NaN. Where it has -Inf "
             "only, y is NaN without a mask; with one it is 0, and its logarithm -Inf.",
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
    .result = result,
    .cost = cost,
    .reference = reference,
    .bounds = bounds,
    .sample = sample,
    .large_sample = large_sample,
    .tolerance = tolerance,
    .bench_shapes = "64x1024,256x1024,1024x1024,4096x1024,16384x1024,65536x1024,16384x4096,1024x131072,"
                    "128x1048576,262144x1024,524288x1024",
};
