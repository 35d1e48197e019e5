#include "gemm/cpu_finish.h"

#include "common/cpu.h"
#include "common/half.h"
#include "common/threads.h"
#include "elementwise/unary_function_cpu.h"
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
		unary_apply_f32(f->args->params.gemm.activation, v + i, n);
	}
}

static void finish_f64(const struct finishing *f, int64_t line)
{
	const double *bias = has_bias(f->args) ? f->args->views[GEMM_BIAS].data : NULL;
	double *v = (double *)f->sums->data + line * f->sums->apart;
	int64_t first = f->bias_first + line * f->bias_apart;

	for (int64_t i = 0; bias && i < f->length; i++)
		v[i] += bias[first + i * f->bias_along];
	unary_apply_f64(f->args->params.gemm.activation, v, f->length);
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
	double elements = (double)view_elements(&args->views[GEMM_C]);
	double element_ns = unary_element_ns(args->params.gemm.activation,
	                                     args->views[GEMM_A].dtype == KOPS_F64 ? KOPS_F64 : KOPS_F32);

	return elements * element_ns / cpu_threads(elements / PART_ELEMENTS);
}
