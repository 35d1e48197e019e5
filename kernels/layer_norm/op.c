/*
 * layer_norm: y = (x - mean) / sqrt(variance + eps) * weight + bias along the last axis, where the variance is
 * the mean of the squared deviations of all elements, not of a sample. J. L. Ba, J. R. Kiros, G. E. Hinton,
 * "Layer normalization", 2016.
 *
 * After check() x and y have rank 4. The last axis is normalised. The three before it number the rows, and are
 * folded if both views allow it: dense tensors become (1, 1, rows, columns). Axes of one index have stride 0.
 * weight and bias, if given, have one axis as long as a row.
 *
 * A row with NaN or an infinity becomes NaN. A row of equal numbers becomes the bias, or NaN if eps is 0.
 * Elements of the 16-bit types are first widened to f32 or more, and the result is rounded to them last.
 */
#include <float.h>
#include <math.h>

#include "common/half.h"
#include "common/rules.h"
#include "layer_norm/layer_norm.h"

enum { X = LAYER_NORM_X, WEIGHT = LAYER_NORM_WEIGHT, BIAS = LAYER_NORM_BIAS, Y = LAYER_NORM_Y };

static const struct op_operand operands[] = {
    [X] = {.name = "x", .dtypes = RULES_FLOATS, .dtype_of = OWN_DTYPE, .about = "1 to 4 axes"},
    [WEIGHT] = {.name = "weight",
                .is_optional = true,
                .dtypes = RULES_FLOATS,
                .dtype_of = X,
                .about = "one axis, as long as x's last; ones if absent"},
    [BIAS] = {.name = "bias",
              .is_optional = true,
              .dtypes = RULES_FLOATS,
              .dtype_of = X,
              .about = "one axis, as long as x's last; zeros if absent"},
    [Y] = {.name = "y",
           .role = OPERAND_OUTPUT,
           .dtypes = RULES_FLOATS,
           .dtype_of = X,
           .in_place = 1u << X,
           .about = "x's shape"},
};

static const struct op_attribute attributes[] = {
    {.name = "eps",
     .type = ATTRIBUTE_NUMBER,
     .offset = offsetof(struct plain_params, numbers[LAYER_NORM_EPS]),
     .min = 0,
     .max = (double)FLT_MAX,
     .otherwise = 1e-5,
     .about = "added to the variance"},
};

/* Checks weight or bias. */
static int check_vector(const struct view *v, const char *name, const struct view *x, char why[WHY_BYTES])
{
	char tv[RULES_SHAPE_BYTES], tx[RULES_SHAPE_BYTES];

	if (view_is_absent(v) || (v->rank == 1 && v->shape[0] == x->shape[x->rank - 1]))
		return 0;
	return rules_refuse(why, KOPS_E_SHAPE, "%s is %s and x %s; %s has one axis, as long as x's last", name,
	                    rules_shape(v, tv), rules_shape(x, tx), name);
}

static int check_inputs(const struct op_args *args, char why[WHY_BYTES])
{
	const struct view *x = &args->views[X];
	int rc;

	if ((rc = rules_rank(x, "x", 1, 4, why)) < 0 ||
	    (rc = check_vector(&args->views[WEIGHT], "weight", x, why)) < 0)
		return rc;
	return check_vector(&args->views[BIAS], "bias", x, why);
}

/* y takes the shape of x, which is the default. */
static int result(struct op_args *args, char why[WHY_BYTES])
{
	return check_inputs(args, why);
}

static int check(struct op_args *args, char why[WHY_BYTES])
{
	struct view *x = &args->views[X], *y = &args->views[Y];
	int rc;

	if ((rc = check_inputs(args, why)) < 0 || (rc = rules_same_shape(x, "x", y, "y", why)) < 0 ||
	    (rc = rules_outputs(args, why)) < 0)
		return rc;
	layer_norm_set_pass(args, LAYER_NORM_WHOLE, false);
	rules_pad_rank(x, 4);
	rules_pad_rank(y, 4);
	rules_fold((struct view *[]){x, y}, 2, 3);
	return 0;
}

/* Counts a sum, a difference, its square and sum; then a difference, two products and a sum. */
static void cost(const struct op_args *args, struct cost *ret)
{
	enum layer_norm_pass pass = layer_norm_pass(args);

	ret->flops = (pass == LAYER_NORM_WHOLE ? 8 : 4) * (double)view_elements(&args->views[Y]);
	ret->bytes = rules_bytes(&args->views[X]) + rules_bytes(&args->views[WEIGHT]) +
	             rules_bytes(&args->views[BIAS]) +
	             (pass == LAYER_NORM_MEASURE ? 0 : rules_bytes(&args->views[Y]));
}

#define BLOCK 256 /* elements summed one by one: many equal terms would all round alike */

/* x0: index of the first of n elements, relative to the view's first. */
static struct layer_norm_partial measure_block(const struct view *x, int64_t x0, int64_t n)
{
	struct layer_norm_partial p = {(double)n, 0, 0};
	double sum = 0, apart = 0;

	for (int64_t i = 0; i < n; i++)
		sum += half_load(x->data, x->dtype, x0 + i * x->strides[3]);
	double near = sum / p.count;
	for (int64_t i = 0; i < n; i++) {
		double d = half_load(x->data, x->dtype, x0 + i * x->strides[3]) - near;
		apart += d;
		p.squares += d * d;
	}
	/* The deviations correct the rounding of the first mean. */
	p.mean = near + apart / p.count;
	p.squares = fmax(p.squares - apart * apart / p.count, 0);
	return p;
}

static struct layer_norm_partial measure_row(const struct op_args *args, int64_t x0)
{
	const struct view *x = &args->views[X];
	int64_t n = (int64_t)x->shape[3];
	struct layer_norm_partial p = {0, 0, 0};

	for (int64_t i = 0; i < n; i += BLOCK)
		p = layer_norm_join(p, measure_block(x, x0 + i * x->strides[3], n - i < BLOCK ? n - i : BLOCK));
	return p;
}

/* Returns weight's or bias' element. */
static double vector_at(const struct view *v, int64_t i, double otherwise)
{
	return view_is_absent(v) ? otherwise : half_load(v->data, v->dtype, i * v->strides[0]);
}

static void write_row(const struct op_args *args, int64_t x0, int64_t y0, const struct layer_norm_partial *p)
{
	const struct view *x = &args->views[X], *y = &args->views[Y];
	double deviation = sqrt(p->squares / p->count + layer_norm_eps(args));

	for (int64_t i = 0; i < (int64_t)y->shape[3]; i++) {
		double t = (half_load(x->data, x->dtype, x0 + i * x->strides[3]) - p->mean) / deviation;
		half_store(y->data, y->dtype, y0 + i * y->strides[3],
		           t * vector_at(&args->views[WEIGHT], i, 1) + vector_at(&args->views[BIAS], i, 0));
	}
}

/* carried: of the row, if it is computed in parts. */
static void reference_row(const struct op_args *args, int64_t x0, int64_t y0,
                          struct layer_norm_partial *carried)
{
	enum layer_norm_pass pass = layer_norm_pass(args);
	struct layer_norm_partial of_row = pass == LAYER_NORM_WRITE ? *carried : measure_row(args, x0);

	if (pass == LAYER_NORM_MEASURE)
		*carried = layer_norm_goes_on(args) ? layer_norm_join(*carried, of_row) : of_row;
	else
		write_row(args, x0, y0, &of_row);
}

static void reference(const struct op_args *args)
{
	const struct view *y = &args->views[Y];
	const int64_t *sx = args->views[X].strides, *sy = y->strides;
	struct layer_norm_partial *carried = args->carried;
	bool is_part = layer_norm_pass(args) != LAYER_NORM_WHOLE;

	for (int64_t i = 0; i < (int64_t)y->shape[0]; i++)
		for (int64_t j = 0; j < (int64_t)y->shape[1]; j++)
			for (int64_t k = 0; k < (int64_t)y->shape[2]; k++)
				reference_row(args, i * sx[0] + j * sx[1] + k * sx[2],
				              i * sy[0] + j * sy[1] + k * sy[2], is_part ? carried++ : NULL);
}

/* ---- How far correct results may lie from the reference ---- */

/* What determines the errors of a row. */
struct spread {
	double mean, peak, apart, variance; /* peak: largest |x|; apart: mean |x - mean| */
};

static struct spread spread_of(const struct view *x, int64_t x0, const struct layer_norm_partial *known)
{
	struct spread s = {.mean = known->mean, .variance = known->squares / known->count};

	for (int64_t i = 0; i < (int64_t)x->shape[3]; i++) {
		double value = half_load(x->data, x->dtype, x0 + i * x->strides[3]);
		s.peak = fmax(s.peak, fabs(value));
		s.apart += fabs(value - known->mean) / known->count;
	}
	return s;
}

/*
 * u: the unit roundoff, c: the roundings of a sum. A first mean, which may be off by shift = c u peak, is
 * subtracted from each element. The deviations are larger by that shift, and rounded; their mean and squares
 * are summed with c roundings. If that is most of the variance, the result is undefined. A mean of f64 elements
 * is no more exact than its type.
 */
static void bounds(const struct op_args *args, uint64_t row, double *ret)
{
	const struct view *x = &args->views[X], *weight = &args->views[WEIGHT], *bias = &args->views[BIAS];
	int64_t x0 = view_row(x, row);
	const struct layer_norm_partial known = measure_row(args, x0);
	const struct spread s = spread_of(x, x0, &known);
	double u = x->dtype == KOPS_F64 ? 0x1p-53 : 0x1p-24, c = 16 + rules_sum_roundings(x),
	       shift = c * u * s.peak;
	double variance = s.variance + layer_norm_eps(args), deviation = sqrt(variance);
	double held = x->dtype == KOPS_F64 ? 4 * u * s.peak : 0;
	double of_mean = (held + u * shift + c * u * (s.apart + shift)) / deviation;
	double of_variance = c * u * (s.variance + shift * shift) / variance;

	for (int64_t i = 0; i < (int64_t)x->shape[3]; i++) {
		double t = (half_load(x->data, x->dtype, x0 + i * x->strides[3]) - s.mean) / deviation;
		double w = vector_at(weight, i, 1), b = vector_at(bias, i, 0);

		ret[i] = fabs(w) * (of_mean + fabs(t) * (of_variance + 8 * u)) +
		         4 * u * (fabs(t * w) + fabs(b)) + rules_flushed(x->dtype);
		if (!isfinite(s.mean))
			ret[i] = 0;
		else if (!(of_variance <= 0.1) || (isinf(w) && fabs(t) < 0.1))
			ret[i] = -1;
	}
}

/* ---- Samples for self-tests ---- */

static void sample_view(struct view *v, kops_dtype dtype, uint32_t rank, uint64_t rows, uint64_t cols)
{
	*v = (struct view){.dtype = dtype, .rank = rank, .shape = {1, 1, rows, cols}};
	if (rank == 1)
		v->shape[0] = cols;
	view_make_dense(v);
}

static bool sample_of(kops_dtype dtype, uint64_t rows, uint64_t cols, struct op_args *args)
{
	if (!op_takes(&op_layer_norm, dtype))
		return false;
	*args = (struct op_args){.op = &op_layer_norm};
	args->params.plain.numbers[LAYER_NORM_EPS] = 1e-5;
	sample_view(&args->views[X], dtype, 4, rows, cols);
	sample_view(&args->views[WEIGHT], dtype, 1, rows, cols);
	sample_view(&args->views[BIAS], dtype, 1, rows, cols);
	sample_view(&args->views[Y], dtype, 4, rows, cols);
	return true;
}

/* Makes rows that several warps share. */
static bool sample(kops_dtype dtype, struct op_args *args)
{
	return sample_of(dtype, 9, 1291, args);
}

/* Makes a few long rows, each shared by several blocks. */
static bool large_sample(kops_dtype dtype, struct op_args *args)
{
	return sample_of(dtype, 3, 40003, args);
}

/*
 * Elements, weights and biases lie in [-1, 1], so the deviation is about 0.58 and results stay below 3. Allows
 * for f32 arithmetic and the rounding of results.
 */
static double tolerance(const struct op_args *args)
{
	switch (args->views[Y].dtype) {
	case KOPS_F64:
		return 1e-13;
	case KOPS_F16:
		return 4e-6 + 2 * 3 * 0x1p-11;
	case KOPS_BF16:
		return 4e-6 + 2 * 3 * 0x1p-8;
	default:
		return 4e-6;
	}
}

static uint64_t steps(const struct op_args *args)
{
	return args->views[Y].shape[3];
}

static void step_part(struct op_args *args, unsigned pass, uint64_t first, uint64_t n)
{
	for (unsigned i = X; i <= Y; i++) {
		struct view *v = &args->views[i];

		if (!view_is_absent(v))
			view_narrow(v, v->rank - 1, first, n);
	}
	layer_norm_set_pass(args, pass == 0 ? LAYER_NORM_MEASURE : LAYER_NORM_WRITE, pass == 0 && first > 0);
}

static uint64_t carried_bytes(const struct op_args *args)
{
	return rules_row_bytes(&args->views[Y], sizeof(struct layer_norm_partial));
}

static const struct part_axis part_axes[] = {{{0, PART_NONE, PART_NONE, 0}, false},
                                             {{1, PART_NONE, PART_NONE, 1}, false},
                                             {{2, PART_NONE, PART_NONE, 2}, false}};

const struct op op_layer_norm = {
    .name = "layer_norm",
    .title = "normalisation of rows to mean 0 and variance 1",
    .about = "y = (x - mean) / sqrt(variance + eps) * weight + bias along the last axis",
    .notes = "The variance is that of all elements of the row, not of a sample. A row with NaN or an infinity "
             "becomes NaN; so does one of f64 whose sum leaves the range.",
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
};
