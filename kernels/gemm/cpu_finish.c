#include "gemm/cpu_finish.h"

#include "common/cpu.h"
#include "common/half.h"
#include "common/threads.h"
#include "gemm/activation.h"
#include "gemm/gemm.h"

#define PART_ELEMENTS 16384 /* per thread part */
#define PIECE         1024  /* elements of a line at a time: their bias lies in the cache */

static bool has_bias(const struct op_args *args)
{
	return !view_is_absent(&args->views[GEMM_BIAS]);
}

/* ---- f32 ---- */

/* n elements of the bias, the first of which has this index relative to the view's, widened. */
static void load_bias(const struct view *bias, int64_t first, int64_t stride, int64_t n, float *ret)
{
	const char *from = (const char *)bias->data + first * (int64_t)dtype_size(bias->dtype);

	if (stride == 1 && bias->dtype == KOPS_F32)
		memcpy(ret, from, (size_t)n * sizeof *ret);
	else if (stride == 1)
		half_widen(ret, from, bias->dtype, n);
	else
		for (int64_t i = 0; i < n; i++)
			ret[i] = (float)half_load(from, bias->dtype, i * stride);
}

CPU_CLONES static void add(float *v, const float *bias, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		v[i] += bias[i];
}

CPU_CLONES static void cut_at_zero(float *v, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		v[i] = v[i] < 0 ? 0 : v[i];
}

/* v * sigmoid(v * P(v^2)): see activation.h. */
CPU_CLONES static void bend(float *v, int64_t n, const float *terms)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		float square = v[i] * v[i], p = terms[ACTIVATION_TERMS - 1];
		square = square > ACTIVATION_SQUARE_MAX ? ACTIVATION_SQUARE_MAX : square;
		for (int t = ACTIVATION_TERMS - 2; t >= 0; t--)
			p = p * square + terms[t];
		float z = v[i] * p, e = cpu_exp_negative(z < 0 ? z : -z);
		v[i] = v[i] * ((z < 0 ? e : 1) / (1 + e));
	}
}

static void activate(float *v, int64_t n, enum gemm_activation activation)
{
	if (activation == GEMM_ACTIVATION_RELU)
		cut_at_zero(v, n);
	else if (activation != GEMM_ACTIVATION_NONE)
		bend(v, n, activation_terms[activation]);
}

/* ---- Lines ---- */

struct finishing {
	const struct op_args *args;
	const struct gemm_sums *sums;
	int64_t bias_first, bias_apart, bias_along; /* elements: of the batch; from line to line; in a line */
	int64_t lines, length;
	unsigned n_parts;
};

static void finish_f32(const struct finishing *f, int64_t line)
{
	const struct view *bias = &f->args->views[GEMM_BIAS];
	float *v = (float *)f->sums->data + line * f->sums->apart, of_piece[PIECE];

	for (int64_t i = 0; i < f->length; i += PIECE) {
		int64_t n = f->length - i < PIECE ? f->length - i : PIECE;
		if (has_bias(f->args)) {
			load_bias(bias, f->bias_first + line * f->bias_apart + i * f->bias_along, f->bias_along,
			          n, of_piece);
			add(v + i, of_piece, n);
		}
		activate(v + i, n, f->args->params.gemm.activation);
	}
}

static void finish_f64(const struct finishing *f, int64_t line)
{
	const double *bias = has_bias(f->args) ? f->args->views[GEMM_BIAS].data : NULL;
	double *v = (double *)f->sums->data + line * f->sums->apart;
	int64_t first = f->bias_first + line * f->bias_apart;

	for (int64_t i = 0; i < f->length; i++)
		v[i] = activation_of(f->args->params.gemm.activation,
		                     bias ? v[i] + bias[first + i * f->bias_along] : v[i]);
}

static void finish_part(void *ctx, unsigned part)
{
	const struct finishing *f = ctx;
	bool is_double = f->args->views[GEMM_A].dtype == KOPS_F64;
	int64_t end = (int64_t)threads_bound((uint64_t)f->lines, part + 1, f->n_parts);

	for (int64_t i = (int64_t)threads_bound((uint64_t)f->lines, part, f->n_parts); i < end; i++)
		if (is_double)
			finish_f64(f, i);
		else
			finish_f32(f, i);
}

void gemm_cpu_finish(const struct op_args *args, uint64_t batch, const struct gemm_sums *sums)
{
	const struct view *c = &args->views[GEMM_C], *bias = &args->views[GEMM_BIAS];
	unsigned line = sums->by_columns ? 2 : 1, along = sums->by_columns ? 1 : 2;
	struct finishing f = {.args = args, .sums = sums};

	f.lines = (int64_t)c->shape[line];
	f.length = (int64_t)c->shape[along];
	if (has_bias(args)) {
		f.bias_first = (int64_t)batch * bias->strides[0];
		f.bias_apart = bias->strides[line];
		f.bias_along = bias->strides[along];
	}
	f.n_parts = threads_parts(c->shape[1] * c->shape[2], PART_ELEMENTS);
	threads_run(f.n_parts, finish_part, &f);
}

double gemm_cpu_finish_ns(const struct op_args *args)
{
	enum gemm_activation activation = args->params.gemm.activation;
	double of_f64 = activation > GEMM_ACTIVATION_RELU ? 20 : 1,
	       of_f32 = activation > GEMM_ACTIVATION_RELU ? 1 : 0.3;
	double elements = (double)view_elements(&args->views[GEMM_C]);

	return elements * (args->views[GEMM_A].dtype == KOPS_F64 ? of_f64 : of_f32) /
	       cpu_threads(elements / PART_ELEMENTS);
}
