/*
 * rules.c: the rules of layer_norm, y = (x - mean) / sqrt(variance + eps) * weight + bias along the last axis,
 * and of rms_norm, y = x / sqrt(mean of squares + eps) * weight + bias. The variance is the mean of the squared
 * deviations of all elements, not of a sample. J. L. Ba, J. R. Kiros, G. E. Hinton, "Layer normalization",
 * 2016; B. Zhang, R. Sennrich, "Root mean square layer normalization", 2019.
 *
 * With a residual, x + residual takes the place of x, rounded to their type as add does it. That is what a
 * transformer carries on to its next block, and the output `sum` if that is wanted. y is what the op gives for
 * this sum.
 *
 * After check() x, residual, y and sum have rank 4. The last axis is normalised. The three before it number the
 * rows, and are folded if all views allow it: dense tensors become (1, 1, rows, columns). Axes of one index
 * have stride 0. weight and bias, if given, have one axis as long as a row.
 *
 * In layer_norm, a row with NaN or an infinity becomes NaN. A row of equal numbers becomes the bias, or NaN if
 * eps is 0. In rms_norm, a row with NaN becomes NaN, and infinities make NaN of themselves and 0 of others.
 * Elements of the 16-bit types are first widened to f32 or more, and the result is rounded to them last.
 */
#include <float.h>
#include <math.h>

#include "common/half.h"
#include "common/rules.h"
#include "layer_norm/rows.h"
#include "layer_norm/rules.h"

enum {
	X = LAYER_NORM_X,
	WEIGHT = LAYER_NORM_WEIGHT,
	BIAS = LAYER_NORM_BIAS,
	RESIDUAL = LAYER_NORM_RESIDUAL,
	Y = LAYER_NORM_Y,
	SUM = LAYER_NORM_SUM
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

/* Repeats the residual to x's shape, with rank 4. */
static int check_inputs(struct op_args *args, char why[WHY_BYTES])
{
	const struct view *x = &args->views[X];
	struct view *residual = &args->views[RESIDUAL];
	int rc;

	if ((rc = rules_rank(x, "x", 1, 4, why)) < 0 ||
	    (rc = check_vector(&args->views[WEIGHT], "weight", x, why)) < 0 ||
	    (rc = check_vector(&args->views[BIAS], "bias", x, why)) < 0)
		return rc;
	if (layer_norm_has_residual(args) && (rc = rules_rank(residual, "residual", 1, 4, why)) == 0)
		rc = rules_spread(residual, "residual", x, "x", 4, why);
	return rc;
}

/* Outputs take the shape of x, which is the default. */
int layer_norm_result(struct op_args *args, char why[WHY_BYTES])
{
	struct op_args trial = *args;

	if (!layer_norm_has_residual(args))
		args->views[SUM] = (struct view){.rank = 0};
	return check_inputs(&trial, why);
}

static int check_sum(const struct op_args *args, char why[WHY_BYTES])
{
	const struct view *sum = &args->views[SUM];

	if (view_is_absent(sum))
		return 0;
	if (!layer_norm_has_residual(args))
		return rules_refuse(why, KOPS_E_INVALID,
		                    "sum is x + residual, and there is no residual; give both or neither");
	return rules_same_shape(&args->views[X], "x", sum, "sum", why);
}

/* Gives views of rows rank 4; how many there are. */
static unsigned pad_rows(struct op_args *args, struct view *views[LAYER_NORM_OPERANDS])
{
	unsigned n = 0;

	for (unsigned v = 0; v < LAYER_NORM_OPERANDS; v++)
		if (layer_norm_has_rows(v) && !view_is_absent(&args->views[v])) {
			rules_pad_rank(&args->views[v], 4);
			views[n++] = &args->views[v];
		}
	return n;
}

int layer_norm_check(struct op_args *args, bool is_rms, char why[WHY_BYTES])
{
	struct view *rows[LAYER_NORM_OPERANDS];
	unsigned n;
	int rc;

	if ((rc = check_inputs(args, why)) < 0 ||
	    (rc = rules_same_shape(&args->views[X], "x", &args->views[Y], "y", why)) < 0 ||
	    (rc = check_sum(args, why)) < 0)
		return rc;
	n = pad_rows(args, rows);
	if ((rc = rules_outputs(args, why)) < 0)
		return rc;
	layer_norm_set_pass(args, LAYER_NORM_WHOLE, false);
	args->params.plain.flags[LAYER_NORM_IS_RMS] = is_rms;
	rules_fold(rows, n, 3);
	return 0;
}

/* Counts a sum, a difference, its square and sum; then a difference, two products and a sum. A residual adds
 * one, and without a mean there are two less. */
void layer_norm_cost(const struct op_args *args, struct cost *ret)
{
	enum layer_norm_pass pass = layer_norm_pass(args);
	double of_pass = 4 + layer_norm_has_residual(args) - (layer_norm_is_rms(args) ? 1.5 : 0);

	ret->flops = (pass == LAYER_NORM_WHOLE ? 2 : 1) * of_pass * (double)view_elements(&args->views[Y]);
	ret->bytes = 0;
	for (unsigned v = X; v < (pass == LAYER_NORM_MEASURE ? Y : LAYER_NORM_OPERANDS); v++)
		ret->bytes += view_is_absent(&args->views[v]) ? 0 : rules_bytes(&args->views[v]);
}

#define BLOCK 256 /* elements summed one by one: many equal terms would all round alike */

/* n elements from `at` on. */
static struct layer_norm_partial measure_block(const struct op_args *args, const struct layer_norm_place *at,
                                               int64_t n)
{
	struct layer_norm_partial p = {(double)n, 0, 0};
	double sum = 0, apart = 0, near = 0;

	for (int64_t i = 0; i < n && !layer_norm_is_rms(args); i++)
		sum += layer_norm_element(args, at, i);
	near = sum / p.count;
	for (int64_t i = 0; i < n; i++) {
		double d = layer_norm_element(args, at, i) - near;
		apart += d;
		p.squares += d * d;
	}
	if (layer_norm_is_rms(args))
		return p;
	/* The deviations correct the rounding of the first mean. */
	p.mean = near + apart / p.count;
	p.squares = fmax(p.squares - apart * apart / p.count, 0);
	return p;
}

static struct layer_norm_partial measure_row(const struct op_args *args, struct layer_norm_place row)
{
	int64_t n = (int64_t)args->views[X].shape[3];
	struct layer_norm_partial p = {0, 0, 0};

	for (int64_t i = 0; i < n; i += BLOCK) {
		struct layer_norm_place at = layer_norm_column(args, row, i);
		p = layer_norm_join(p, measure_block(args, &at, n - i < BLOCK ? n - i : BLOCK));
	}
	return p;
}

/* Returns weight's or bias' element. */
static double vector_at(const struct view *v, int64_t i, double otherwise)
{
	return view_is_absent(v) ? otherwise : half_load(v->data, v->dtype, i * v->strides[0]);
}

static void write_row(const struct op_args *args, const struct layer_norm_place *row,
                      const struct layer_norm_partial *p)
{
	const struct view *y = &args->views[Y], *sum = &args->views[SUM];
	double deviation = sqrt(p->squares / p->count + layer_norm_eps(args));

	for (int64_t i = 0; i < (int64_t)y->shape[3]; i++) {
		double element = layer_norm_element(args, row, i), t = (element - p->mean) / deviation;
		half_store(y->data, y->dtype, row->of[Y] + i * y->strides[3],
		           t * vector_at(&args->views[WEIGHT], i, 1) + vector_at(&args->views[BIAS], i, 0));
		if (!view_is_absent(sum))
			half_store(sum->data, sum->dtype, row->of[SUM] + i * sum->strides[3], element);
	}
}

/* carried: of the row, if it is computed in parts. */
static void reference_row(const struct op_args *args, uint64_t i, struct layer_norm_partial *carried)
{
	enum layer_norm_pass pass = layer_norm_pass(args);
	struct layer_norm_place row = layer_norm_row(args, i);
	struct layer_norm_partial of_row = pass == LAYER_NORM_WRITE ? *carried : measure_row(args, row);

	if (pass == LAYER_NORM_MEASURE)
		*carried = layer_norm_goes_on(args) ? layer_norm_join(*carried, of_row) : of_row;
	else
		write_row(args, &row, &of_row);
}

void layer_norm_reference(const struct op_args *args)
{
	struct layer_norm_partial *carried = args->carried;
	bool is_part = layer_norm_pass(args) != LAYER_NORM_WHOLE;

	for (uint64_t i = 0, rows = layer_norm_rows(args); i < rows; i++)
		reference_row(args, i, is_part ? carried++ : NULL);
}

/* ---- How far correct results may lie from the reference ---- */

/* What determines the errors of a row. */
struct spread {
	double mean, peak, apart, variance; /* peak: largest |x|; apart: mean |x - mean| */
	bool overflows;                     /* x + residual leaves the type's range, which f64 would not */
};

static struct spread spread_of(const struct op_args *args, const struct layer_norm_place *row,
                               const struct layer_norm_partial *known)
{
	const struct view *x = &args->views[X];
	struct spread s = {.mean = known->mean, .variance = known->squares / known->count};

	for (int64_t i = 0; i < (int64_t)x->shape[3]; i++) {
		double value = layer_norm_element(args, row, i);
		s.peak = fmax(s.peak, fabs(value));
		s.apart += fabs(value - known->mean) / known->count;
		s.overflows |= isinf(value) && layer_norm_has_residual(args);
	}
	return s;
}

static double unit_of(kops_dtype dtype)
{
	return dtype == KOPS_F64    ? 0x1p-53
	       : dtype == KOPS_F16  ? 0x1p-11
	       : dtype == KOPS_BF16 ? 0x1p-8
	                            : 0x1p-24;
}

/*
 * u: the unit roundoff, c: the roundings of a sum. A first mean, which may be off by shift = c u peak, is
 * subtracted from each element. The deviations are larger by that shift, and rounded; their mean and squares
 * are summed with c roundings. If that is most of the variance, the result is undefined. A mean of f64 elements
 * is no more exact than its type. held: how far elements are off, as x + residual is rounded.
 */
void layer_norm_bounds(const struct op_args *args, uint64_t i_row, double *ret)
{
	const struct view *x = &args->views[X], *weight = &args->views[WEIGHT], *bias = &args->views[BIAS];
	struct layer_norm_place row = layer_norm_row(args, i_row);
	const struct layer_norm_partial known = measure_row(args, row);
	const struct spread s = spread_of(args, &row, &known);
	bool is_rms = layer_norm_is_rms(args), is_f64 = x->dtype == KOPS_F64;
	double u = is_f64 ? 0x1p-53 : 0x1p-24, c = 16 + rules_sum_roundings(x),
	       shift = is_rms ? 0 : c * u * s.peak;
	double variance = s.variance + layer_norm_eps(args), deviation = sqrt(variance);
	double held = layer_norm_has_residual(args) ? unit_of(x->dtype) * s.peak : 0;
	double of_mean =
	    held + (is_rms ? 0 : (is_f64 ? 4 * u * s.peak : 0) + u * shift + c * u * (s.apart + shift));
	double of_variance = (c * u * (s.variance + shift * shift) + held * (2 * s.apart + held)) / variance;

	for (int64_t i = 0; i < (int64_t)x->shape[3]; i++) {
		double t = (layer_norm_element(args, &row, i) - s.mean) / deviation;
		double w = vector_at(weight, i, 1), b = vector_at(bias, i, 0);

		ret[i] = fabs(w) * (of_mean / deviation + fabs(t) * (of_variance + 8 * u)) +
		         4 * u * (fabs(t * w) + fabs(b)) + rules_flushed(x->dtype);
		if (!isfinite(is_rms ? s.variance : s.mean))
			ret[i] = s.overflows ? -1 : is_rms && !isnan(t) ? rules_flushed(x->dtype) : 0;
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

static bool sample_of(const struct op *op, kops_dtype dtype, uint64_t rows, uint64_t cols, struct op_args *args)
{
	if (!op_takes(op, dtype))
		return false;
	*args = (struct op_args){.op = op};
	args->params.plain.numbers[LAYER_NORM_EPS] = 1e-5;
	for (unsigned v = 0; v < LAYER_NORM_OPERANDS; v++)
		sample_view(&args->views[v], dtype, layer_norm_has_rows(v) ? 4 : 1, rows, cols);
	return true;
}

/* Makes rows that several warps share. */
bool layer_norm_sample(const struct op *op, kops_dtype dtype, struct op_args *args)
{
	return sample_of(op, dtype, 9, 1291, args);
}

/* Makes a few long rows, each shared by several blocks. */
bool layer_norm_large_sample(const struct op *op, kops_dtype dtype, struct op_args *args)
{
	return sample_of(op, dtype, 3, 40003, args);
}

/*
 * Elements, weights and biases lie in [-1, 1], so the deviation is about 0.8 with a residual, and results stay
 * below 3.5. Allows for f32 arithmetic and the rounding of results.
 */
double layer_norm_tolerance(const struct op_args *args)
{
	switch (args->views[Y].dtype) {
	case KOPS_F64:
		return 1e-13;
	case KOPS_F16:
		return 4e-6 + 2 * 3.5 * 0x1p-11;
	case KOPS_BF16:
		return 4e-6 + 2 * 3.5 * 0x1p-8;
	default:
		return 4e-6;
	}
}

uint64_t layer_norm_steps(const struct op_args *args)
{
	return args->views[Y].shape[3];
}

void layer_norm_step_part(struct op_args *args, unsigned pass, uint64_t first, uint64_t n)
{
	for (unsigned i = 0; i < LAYER_NORM_OPERANDS; i++) {
		struct view *v = &args->views[i];

		if (!view_is_absent(v))
			view_narrow(v, v->rank - 1, first, n);
	}
	layer_norm_set_pass(args, pass == 0 ? LAYER_NORM_MEASURE : LAYER_NORM_WRITE, pass == 0 && first > 0);
}

uint64_t layer_norm_carried_bytes(const struct op_args *args)
{
	return rules_row_bytes(&args->views[Y], sizeof(struct layer_norm_partial));
}
