/*
 * gemm: c = activation(alpha * op(a) * op(b) + beta * c + bias), batched. op: nothing, or the complex
 * conjugate.
 *
 * After check() all views have rank 3: a (batch, M, K), b (batch, K, N), bias and c (batch, M, N). The axes
 * along which the bias is repeated have stride 0. The batch stride of a and b is 0 where an operand serves
 * every batch and where there is one batch. Strides of axes of one index are such that a matrix with unit
 * column stride and row stride >= columns is row-major with that leading dimension, and the other way round for
 * column-major; rows need look no further. What such a matrix was before is in the parameters, for libraries
 * whose bits depend on it. Factors of products that are not f64 or c128 are exact in f32. Real types have no
 * imaginary factors and no conjugates.
 */
#include <float.h>
#include <math.h>

#include "common/half.h"
#include "common/rules.h"
#include "elementwise/unary_function.h"
#include "gemm/complex/reference.h"
#include "gemm/gemm.h"

enum { A = GEMM_A, B = GEMM_B, BIAS = GEMM_BIAS, C = GEMM_C };

#define DTYPES (RULES_FLOATS | RULES_COMPLEX)

static const struct op_operand operands[] = {
    [A] = {.name = "a",
           .dtypes = DTYPES,
           .about = "[batch,] M, K; with batch 1, or none, it serves every batch of c"},
    [B] = {.name = "b", .dtypes = DTYPES, .about = "[batch,] K, N; likewise"},
    [BIAS] = {.name = "bias",
              .is_optional = true,
              .dtypes = DTYPES,
              .about = "1 to 3 axes; extents of 1, and missing leading ones, are repeated to c's"},
    [C] = {.name = "c", .role = OPERAND_UPDATED, .dtypes = DTYPES, .about = "[batch,] M, N"},
};

static const char *const precisions[] = {[KOPS_PRECISION_F32] = "f32",
                                         [KOPS_PRECISION_IEEE] = "ieee",
                                         [KOPS_PRECISION_TF32] = "tf32",
                                         [KOPS_PRECISION_BF16] = "bf16"};

/* The imaginary part of a factor. */
#define IMAGINARY(NAME, factor, old, text)                                                                     \
	{                                                                                                      \
		.name = NAME, .type = ATTRIBUTE_NUMBER, .offset = offsetof(struct gemm_params, factor),        \
		.takes_nan = true, .is_of_old = old, .min = -(double)INFINITY, .max = (double)INFINITY,        \
		.about = text                                                                                  \
	}
#define CONJUGATE(NAME, flag, text)                                                                            \
	{                                                                                                      \
		.name = NAME, .type = ATTRIBUTE_FLAG, .offset = offsetof(struct gemm_params, flag),            \
		.about = text                                                                                  \
	}

static const struct op_attribute attributes[] = {
    {.name = "alpha",
     .type = ATTRIBUTE_NUMBER,
     .offset = offsetof(struct gemm_params, alpha),
     .takes_nan = true,
     .min = -(double)INFINITY,
     .max = (double)INFINITY,
     .otherwise = 1,
     .about = "a factor of the product"},
    {.name = "beta",
     .type = ATTRIBUTE_NUMBER,
     .offset = offsetof(struct gemm_params, beta),
     .takes_nan = true,
     .is_of_old = true,
     .min = -(double)INFINITY,
     .max = (double)INFINITY,
     .about = "a factor of the old c"},
    {.name = "precision",
     .type = ATTRIBUTE_CHOICE,
     .offset = offsetof(struct gemm_params, precision),
     .otherwise = KOPS_PRECISION_F32,
     .choices = precisions,
     .n_choices = sizeof precisions / sizeof precisions[0],
     .about = "what kernels may do to f32 operands (ieee: FMA only)"},
    {.name = "activation",
     .type = ATTRIBUTE_CHOICE,
     .offset = offsetof(struct gemm_params, activation),
     .otherwise = UNARY_NONE,
     .choices = unary_names,
     .n_choices = GEMM_ACTIVATIONS,
     .about = "what becomes of each element of the result"},
    IMAGINARY("alpha_imag", alpha_imag, false, "the imaginary part of alpha, of complex types"),
    IMAGINARY("beta_imag", beta_imag, true, "the imaginary part of beta, of complex types"),
    CONJUGATE("conj_a", conj_a, "multiply by a's complex conjugate"),
    CONJUGATE("conj_b", conj_b, "multiply by b's complex conjugate"),
};

static uint64_t rows_of(const struct view *v)
{
	return v->shape[v->rank - 2];
}

static uint64_t cols_of(const struct view *v)
{
	return v->shape[v->rank - 1];
}

static uint64_t batch_of(const struct view *v)
{
	return v->rank == 3 ? v->shape[0] : 1;
}

/* M, N, K, behind the batch where there is one. */
static void shape(const struct op_args *args, struct op_shape *ret)
{
	const struct view *a = &args->views[A], *c = &args->views[C];
	bool is_batch = c->rank == 3;

	if (a->rank < 2 || c->rank < 2)
		return;
	rules_take_shape(c, ret);
	ret->rank = is_batch ? 4 : 3;
	ret->extents[ret->rank - 1] = cols_of(a);
}

static void set_matrix(struct view *v, uint64_t rows, uint64_t cols)
{
	v->rank = 2;
	v->shape[0] = rows;
	v->shape[1] = cols;
}

static void of_size(const uint64_t *mnk, struct op_args *args)
{
	set_matrix(&args->views[A], mnk[0], mnk[2]);
	set_matrix(&args->views[B], mnk[2], mnk[1]);
}

static int check_ranks(const struct op_args *args, char why[WHY_BYTES])
{
	const struct view *v = args->views;
	int rc;

	if ((rc = rules_rank(&v[A], "a", 2, 3, why)) < 0 || (rc = rules_rank(&v[B], "b", 2, 3, why)) < 0)
		return rc;
	return rules_rank(&v[C], "c", 2, 3, why);
}

static int check_inner(const struct view *a, const struct view *b, char why[WHY_BYTES])
{
	char ta[RULES_SHAPE_BYTES], tb[RULES_SHAPE_BYTES];

	if (cols_of(a) == rows_of(b))
		return 0;
	return rules_refuse(why, KOPS_E_SHAPE,
	                    "a is %s, b is %s: a's columns (%llu) must equal b's rows (%llu)",
	                    rules_shape(a, ta), rules_shape(b, tb), (unsigned long long)cols_of(a),
	                    (unsigned long long)rows_of(b));
}

/* Repeats the bias, if there is one, to c's shape, with rank 3. */
static int spread_bias(struct view *bias, const struct view *c, char why[WHY_BYTES])
{
	int rc;

	if (view_is_absent(bias))
		return 0;
	if ((rc = rules_rank(bias, "bias", 1, 3, why)) < 0)
		return rc;
	return rules_spread(bias, "bias", c, "c", 3, why);
}

/* Activations are functions of real numbers. */
static int check_finish(const struct op_args *args, char why[WHY_BYTES])
{
	if (!gemm_is_complex(args) || !gemm_finishes(args))
		return 0;
	return rules_refuse(
	    why, KOPS_E_INVALID, "c is %s: complex products take no %s; use real types, or another op for it",
	    dtype_name(args->views[C].dtype), view_is_absent(&args->views[BIAS]) ? "activation" : "bias");
}

static int result(struct op_args *args, char why[WHY_BYTES])
{
	const struct view *a = &args->views[A], *b = &args->views[B];
	struct view *c = &args->views[C], bias = args->views[BIAS];
	char ta[RULES_SHAPE_BYTES], tb[RULES_SHAPE_BYTES];
	int rc;

	if ((rc = rules_rank(a, "a", 2, 3, why)) < 0 || (rc = rules_rank(b, "b", 2, 3, why)) < 0 ||
	    (rc = check_inner(a, b, why)) < 0 || (rc = check_finish(args, why)) < 0)
		return rc;
	if (batch_of(a) != batch_of(b) && batch_of(a) != 1 && batch_of(b) != 1)
		return rules_refuse(why, KOPS_E_SHAPE, "a is %s, b is %s: they need one batch, or 1",
		                    rules_shape(a, ta), rules_shape(b, tb));
	c->rank = a->rank > b->rank ? a->rank : b->rank;
	c->shape[0] = batch_of(a) == 1 ? batch_of(b) : batch_of(a);
	c->shape[c->rank - 2] = rows_of(a);
	c->shape[c->rank - 1] = cols_of(b);
	return spread_bias(&bias, c, why);
}

static int check_shapes(const struct op_args *args, char why[WHY_BYTES])
{
	const struct view *a = &args->views[A], *b = &args->views[B], *c = &args->views[C];
	char ta[RULES_SHAPE_BYTES], tb[RULES_SHAPE_BYTES], tc[RULES_SHAPE_BYTES];
	int rc = check_inner(a, b, why);

	if (rc < 0)
		return rc;
	if (rows_of(c) != rows_of(a) || cols_of(c) != cols_of(b))
		return rules_refuse(why, KOPS_E_SHAPE, "a is %s, b is %s, c is %s: c must be %llux%llu",
		                    rules_shape(a, ta), rules_shape(b, tb), rules_shape(c, tc),
		                    (unsigned long long)rows_of(a), (unsigned long long)cols_of(b));
	if ((batch_of(a) != 1 && batch_of(a) != batch_of(c)) ||
	    (batch_of(b) != 1 && batch_of(b) != batch_of(c)))
		return rules_refuse(why, KOPS_E_SHAPE,
		                    "a is %s, b is %s, c is %s: a and b need c's batch (%llu) or 1",
		                    rules_shape(a, ta), rules_shape(b, tb), rules_shape(c, tc),
		                    (unsigned long long)batch_of(c));
	return 0;
}

/* Products of f32, c64 and smaller types scale in f32: round factors here, once, for every kernel. */
static int check_scalar(double *value, const char *name, kops_dtype dtype, char why[WHY_BYTES])
{
	if (dtype_component(dtype) == KOPS_F64 || !isfinite(*value))
		return 0;
	if (fabs(*value) > (double)FLT_MAX)
		return rules_refuse(why, KOPS_E_INVALID,
		                    "%s is %g, beyond the range of f32; scale the data instead", name, *value);
	*value = (double)(float)*value;
	return 0;
}

static int check_real(double imaginary, const char *name, kops_dtype dtype, char why[WHY_BYTES])
{
	if (imaginary == 0)
		return 0;
	return rules_refuse(why, KOPS_E_INVALID, "%s is %g, and c is %s; only products of c64 and c128 take it",
	                    name, imaginary, dtype_name(dtype));
}

/* A real number is its own conjugate. */
static int check_real_params(struct op_args *args, char why[WHY_BYTES])
{
	struct gemm_params *p = &args->params.gemm;
	kops_dtype dtype = args->views[C].dtype;
	int rc;

	p->conj_a = p->conj_b = false;
	if ((rc = check_real(p->alpha_imag, "alpha_imag", dtype, why)) < 0)
		return rc;
	return check_real(p->beta_imag, "beta_imag", dtype, why);
}

static int check_complex_params(struct op_args *args, char why[WHY_BYTES])
{
	struct gemm_params *p = &args->params.gemm;
	kops_dtype dtype = args->views[C].dtype;
	int rc;

	if ((rc = check_finish(args, why)) < 0)
		return rc;
	if ((rc = check_scalar(&p->alpha_imag, "alpha_imag", dtype, why)) < 0)
		return rc;
	return check_scalar(&p->beta_imag, "beta_imag", dtype, why);
}

static int check_params(struct op_args *args, char why[WHY_BYTES])
{
	struct gemm_params *p = &args->params.gemm;
	int rc = gemm_is_complex(args) ? check_complex_params(args, why) : check_real_params(args, why);

	if (rc < 0 || (rc = check_scalar(&p->alpha, "alpha", args->views[C].dtype, why)) < 0)
		return rc;
	return check_scalar(&p->beta, "beta", args->views[C].dtype, why);
}

static bool is_one_vector(const struct view *v)
{
	return rows_of(v) == 1 || cols_of(v) == 1;
}

/* A matrix of one row or column that is column-major and not row-major, by its leading dimension. */
static bool is_given_by_columns(const struct view *v)
{
	int64_t row_stride = v->strides[v->rank - 2], col_stride = v->strides[v->rank - 1];
	bool by_columns = row_stride == 1 && col_stride >= (int64_t)rows_of(v);
	bool by_rows = col_stride == 1 && row_stride >= (int64_t)cols_of(v);

	return is_one_vector(v) && by_columns && !by_rows;
}

static void normalise(struct view *v, uint64_t batch)
{
	rules_pad_rank(v, 3);
	if (v->shape[0] == 1)
		v->strides[0] = 0;
	v->shape[0] = batch;
	if (v->shape[2] == 1)
		v->strides[2] = 1;
	if (v->shape[1] == 1)
		v->strides[1] = v->strides[2] == 1 ? (int64_t)v->shape[2] : 1;
}

static int check(struct op_args *args, char why[WHY_BYTES])
{
	struct view *a = &args->views[A], *b = &args->views[B], *c = &args->views[C];
	int rc;

	if ((rc = check_ranks(args, why)) < 0 || (rc = check_shapes(args, why)) < 0 ||
	    (rc = check_params(args, why)) < 0 || (rc = rules_outputs(args, why)) < 0 ||
	    (rc = spread_bias(&args->views[BIAS], c, why)) < 0)
		return rc;
	uint64_t batch = batch_of(c);
	args->params.gemm.a_by_columns = is_given_by_columns(a);
	args->params.gemm.b_by_columns = is_given_by_columns(b);
	normalise(a, batch);
	normalise(b, batch);
	normalise(c, batch);
	return 0;
}

/* Other types are what they are. */
static kops_precision precision(const struct op_args *args)
{
	return args->views[A].dtype == KOPS_F32 ? args->params.gemm.precision : KOPS_PRECISION_F32;
}

static bool reads_output(const struct op_args *args, unsigned v)
{
	(void)v;
	return gemm_reads_old(args);
}

static bool ignores_input(const struct op_args *args, unsigned v)
{
	return v != BIAS && args->params.gemm.alpha == 0 && args->params.gemm.alpha_imag == 0;
}

static void cost(const struct op_args *args, struct cost *ret)
{
	const struct view *a = &args->views[A], *b = &args->views[B], *c = &args->views[C];
	double outputs = (double)c->shape[0] * (double)c->shape[1] * (double)c->shape[2];

	/* A complex product is four real ones, a sum two. */
	ret->flops = (gemm_is_complex(args) ? 8 : 2) * outputs * (double)a->shape[2];
	ret->bytes = rules_bytes(a) + rules_bytes(b) + rules_bytes(&args->views[BIAS]) +
	             outputs * (double)dtype_size(c->dtype) * (reads_output(args, C) ? 2 : 1);
}

#define STRIP 64 /* columns of c that one sweep over K accumulates */

/* acc[j] = sum over K of a[i, k] * b[k, from + j], in float64. */
static void accumulate(const struct op_args *args, const char *a_row, const char *b, int64_t from,
                       unsigned width, double acc[STRIP])
{
	const struct view *va = &args->views[A], *vb = &args->views[B];

	for (unsigned j = 0; j < width; j++)
		acc[j] = 0;
	for (int64_t k = 0; k < (int64_t)va->shape[2]; k++) {
		double x = half_load(a_row, va->dtype, k * va->strides[2]);
		int64_t at = k * vb->strides[1] + from * vb->strides[2];
		for (unsigned j = 0; j < width; j++)
			acc[j] += x * half_load(b, vb->dtype, at + j * vb->strides[2]);
	}
}

static double add_bias(double sum, const struct view *bias, int64_t batch, int64_t row, int64_t col)
{
	const int64_t *strides = bias->strides;

	if (view_is_absent(bias))
		return sum;
	return sum +
	       half_load(bias->data, bias->dtype, batch * strides[0] + row * strides[1] + col * strides[2]);
}

/* at: where the strip begins in c. */
static void finish_strip(const struct op_args *args, void *c, const int64_t at[3], unsigned width, bool product,
                         const double acc[STRIP])
{
	const struct gemm_params *p = &args->params.gemm;
	const struct view *vc = &args->views[C];

	for (unsigned j = 0; j < width; j++) {
		int64_t i = at[1] * vc->strides[1] + (at[2] + j) * vc->strides[2];
		double y = p->beta == 0 ? 0 : p->beta * half_load(c, vc->dtype, i);
		double sum = product ? p->alpha * acc[j] + y : y;
		sum = add_bias(sum, &args->views[BIAS], at[0], at[1], at[2] + j);
		half_store(c, vc->dtype, i, unary_of(p->activation, sum));
	}
}

static void reference_matrix(const struct op_args *args, int64_t batch, const char *a, const char *b, char *c)
{
	const struct view *va = &args->views[A], *vc = &args->views[C];
	bool product = gemm_has_product(args);
	int64_t row_bytes = va->strides[1] * (int64_t)dtype_size(va->dtype), cols = (int64_t)vc->shape[2];
	double acc[STRIP] = {0};

	for (int64_t i = 0; i < (int64_t)vc->shape[1]; i++)
		for (int64_t j = 0; j < cols; j += STRIP) {
			unsigned width = cols - j < STRIP ? (unsigned)(cols - j) : STRIP;
			if (product)
				accumulate(args, a + i * row_bytes, b, j, width, acc);
			finish_strip(args, c, (int64_t[]){batch, i, j}, width, product, acc);
		}
}

static char *matrix_of(const struct view *v, int64_t batch)
{
	return (char *)v->data + batch * v->strides[0] * (int64_t)dtype_size(v->dtype);
}

static void reference(const struct op_args *args)
{
	const struct view *v = args->views;

	for (int64_t i = 0; i < (int64_t)v[C].shape[0]; i++)
		if (gemm_is_complex(args))
			gemm_reference_complex(args, matrix_of(&v[A], i), matrix_of(&v[B], i),
			                       matrix_of(&v[C], i));
		else
			reference_matrix(args, i, matrix_of(&v[A], i), matrix_of(&v[B], i),
			                 matrix_of(&v[C], i));
}

static void sample_view(struct view *v, kops_dtype dtype, uint64_t batch, uint64_t rows, uint64_t cols)
{
	*v = (struct view){.dtype = dtype, .rank = 3, .shape = {batch, rows, cols}};
	view_make_dense(v);
}

static bool sample_of(kops_dtype dtype, uint64_t batch, uint64_t m, uint64_t n, uint64_t k,
                      struct op_args *args)
{
	if (!op_takes(&op_gemm, dtype))
		return false;
	*args = (struct op_args){.op = &op_gemm, .params.gemm = {.alpha = 1.25}};
	sample_view(&args->views[A], dtype, batch, m, k);
	sample_view(&args->views[B], dtype, batch, k, n);
	sample_view(&args->views[C], dtype, batch, m, n);
	return true;
}

/*
 * Two batches, and edges beside full tiles of 64 and 128. Small enough for OpenBLAS to stay on one thread: each
 * further one would touch a buffer of its own, memory that an idle daemon would then hold.
 */
static bool sample(kops_dtype dtype, struct op_args *args)
{
	return sample_of(dtype, 2, 133, 71, 27, args);
}

/* For kernels that leave small products to others, or want lines that begin at multiples of 16 bytes. */
static bool large_sample(kops_dtype dtype, struct op_args *args)
{
	return sample_of(dtype, 1, 900, 776, 104, args);
}

/* Unit roundoff of what the product's operands may be rounded to, and of its accumulation. */
static double roundoff(const struct op_args *args)
{
	if (dtype_component(args->views[C].dtype) == KOPS_F64)
		return 0x1p-53;
	if (args->views[C].dtype == KOPS_F32 && args->params.gemm.precision == KOPS_PRECISION_TF32)
		return 0x1p-11;
	if (args->views[C].dtype == KOPS_F32 && args->params.gemm.precision == KOPS_PRECISION_BF16)
		return 0x1p-8;
	return 0x1p-24;
}

/*
 * Operands lie in [-1, 1], so |a||b| <= K, and twice that for each part of a complex sum: four roundoffs of
 * that, and one of the result.
 */
static double tolerance(const struct op_args *args)
{
	const struct gemm_params *p = &args->params.gemm;
	double terms =
	    fabs(p->alpha) * (double)args->views[A].shape[2] * dtype_components(args->views[A].dtype) +
	    fabs(p->beta);
	double out = args->views[C].dtype == KOPS_F16    ? 0x1p-11
	             : args->views[C].dtype == KOPS_BF16 ? 0x1p-8
	                                                 : 0;

	return terms * (4 * roundoff(args) + out);
}

/* Along K. */
static uint64_t steps(const struct op_args *args)
{
	return args->views[A].shape[2];
}

/* What comes last is left to the last part. */
static void step_part(struct op_args *args, unsigned pass, uint64_t first, uint64_t n)
{
	if (first + n < steps(args)) {
		args->views[BIAS] = (struct view){.rank = 0};
		args->params.gemm.activation = UNARY_NONE;
	}
	view_narrow(&args->views[A], 2, first, n);
	view_narrow(&args->views[B], 1, first, n);
	if (first > 0) {
		args->params.gemm.beta = 1;
		args->params.gemm.beta_imag = 0;
	}
	rules_widen(args);
	(void)pass;
}

static const struct part_axis part_axes[] = {{{[A] = 0, [B] = 0, [BIAS] = 0, [C] = 0}, false},
                                             {{[A] = 1, [B] = PART_NONE, [BIAS] = 1, [C] = 1}, true},
                                             {{[A] = PART_NONE, [B] = 2, [BIAS] = 2, [C] = 2}, true}};

const struct op op_gemm = {
    .name = "gemm",
    .title = "products of matrices",
    .about = "c = activation(alpha * a * b + beta * c + bias)",
    .notes =
        "With beta 0, c is not read, so NaN in it does no harm. With alpha 0, a and b are not read. With K "
        "0, their product is 0. An absent bias is 0. gelu is v * Phi(v), gelu_tanh its approximation by "
        "tanh, and silu v / (1 + exp(-v)). Products of f16 and bf16 are summed in f32. If the type is "
        "neither f64 nor c128, alpha and beta are rounded to f32. Finite ones beyond its range are refused; "
        "NaN and Inf are accepted. The factors of c64 and c128 are alpha + alpha_imag i and beta + beta_imag "
        "i. These types take no bias and no activation. conj_a and conj_b change nothing for other types.",
    .operands = operands,
    .n_operands = sizeof operands / sizeof operands[0],
    .attributes = attributes,
    .n_attributes = sizeof attributes / sizeof attributes[0],
    .part_axes = part_axes,
    .n_part_axes = sizeof part_axes / sizeof part_axes[0],
    .passes = 1,
    .steps = steps,
    .step_part = step_part,
    .carried_bytes = rules_wide_bytes,
    .shape = shape,
    .check = check,
    .result = result,
    .precision = precision,
    .reads_output = reads_output,
    .ignores_input = ignores_input,
    .cost = cost,
    .reference = reference,
    .sample = sample,
    .large_sample = large_sample,
    .tolerance = tolerance,
    .size_form = "MxNxK",
    .of_size = of_size,
    .counts_flops = true,
    .bench_shapes = "128x128x1024,256x256x1024,512x512x1024,1024x1024x1024,2048x2048x1024,4096x4096x1024,"
                    "8192x8192x1024,16384x16384x1024",
};
