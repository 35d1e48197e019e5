/* blocked.c: blocks of matrices on GPUs, and products of them. See batch.h. */
#include <math.h>
#include <string.h>

#include "gemm/gemm.h"
#include "gemm/kernels.h"
#include "linalg/batch.h"
#include "linalg/counts.h"

CUDA_LAUNCH(gemm_complex);

struct linalg_batch linalg_batch_of(const struct view *v, uint64_t outer)
{
	int64_t bytes = (int64_t)outer * v->strides[0] * (int64_t)dtype_size(v->dtype);

	return (struct linalg_batch){
	    (char *)v->data + bytes, v->dtype,      v->shape[1],  v->shape[2], v->shape[3],
	    v->strides[1],           v->strides[2], v->strides[3]};
}

struct linalg_batch linalg_batch_block(const struct linalg_batch *m, uint64_t row, uint64_t col, uint64_t rows,
                                       uint64_t cols)
{
	struct linalg_batch b = *m;

	b.data += ((int64_t)row * m->row + (int64_t)col * m->col) * (int64_t)dtype_size(m->dtype);
	b.rows = rows;
	b.cols = cols;
	return b;
}

struct linalg_batch linalg_batch_transposed(const struct linalg_batch *m)
{
	struct linalg_batch t = *m;

	t.rows = m->cols;
	t.cols = m->rows;
	t.row = m->col;
	t.col = m->row;
	return t;
}

static bool has_lines(uint64_t lines, uint64_t length, int64_t apart, int64_t along)
{
	return (length <= 1 || along == 1) && (lines <= 1 || apart >= (int64_t)length);
}

bool linalg_has_runs(const struct view *v)
{
	return v->strides[0] >= 0 && v->strides[1] >= 0 &&
	       (has_lines(v->shape[2], v->shape[3], v->strides[2], v->strides[3]) ||
	        has_lines(v->shape[3], v->shape[2], v->strides[3], v->strides[2]));
}

uint64_t linalg_half(uint64_t n, uint64_t unit)
{
	uint64_t half = (n / 2 + unit - 1) / unit * unit;

	return half < n ? half : half - unit;
}

/* ---- Products ---- */

static struct view view_of(const struct linalg_batch *m)
{
	return (struct view){.data = m->data,
	                     .dtype = m->dtype,
	                     .rank = 3,
	                     .shape = {m->n, m->rows, m->cols},
	                     .strides = {m->n > 1 ? m->batch : 0, m->row, m->col}};
}

/* Lets an axis that both matrices have begin at its other end. */
static void turn(struct view *a, unsigned axis_a, struct view *b, unsigned axis_b)
{
	struct view *const both[] = {a, b};
	const unsigned axes[] = {axis_a, axis_b};

	for (unsigned i = 0; i < 2; i++) {
		struct view *v = both[i];
		int64_t span = (int64_t)(v->shape[axes[i]] - 1) * v->strides[axes[i]];

		v->data = (char *)v->data + span * (int64_t)dtype_size(v->dtype);
		v->strides[axes[i]] = -v->strides[axes[i]];
	}
}

int linalg_subtract_product(const struct linalg_batch *a, bool conj_a, const struct linalg_batch *b,
                            bool conj_b, const struct linalg_batch *c, const struct launch *launch)
{
	struct op_args args = {.op = op_by_name("gemm"),
	                       .views = {[GEMM_A] = view_of(a), [GEMM_B] = view_of(b), [GEMM_C] = view_of(c)},
	                       .params.gemm = {.alpha = -1, .beta = 1, .precision = KOPS_PRECISION_F32}};
	bool is_complex = dtype_components(c->dtype) > 1;
	const char *why_not;

	if (c->n == 0 || c->rows == 0 || c->cols == 0 || a->cols == 0)
		return 0;
	args.params.gemm.conj_a = conj_a && is_complex;
	args.params.gemm.conj_b = conj_b && is_complex;
	if (args.views[GEMM_C].strides[1] < 0)
		turn(&args.views[GEMM_A], 1, &args.views[GEMM_C], 1);
	if (args.views[GEMM_A].strides[2] < 0)
		turn(&args.views[GEMM_A], 2, &args.views[GEMM_B], 1);
	if (args.views[GEMM_C].strides[2] < 0)
		turn(&args.views[GEMM_B], 2, &args.views[GEMM_C], 2);
	if (is_complex && !gemm_cublas_supports(&args, &why_not))
		return gemm_complex(&args, launch);
	return gemm_cublas(&args, launch);
}

/* ---- Solving ---- */

int linalg_solve_all(const struct linalg_solve *s, const struct launch *launch)
{
	uint64_t n = s->t.rows, half, rest;
	struct linalg_solve first = *s, second = *s;
	int rc;

	if (n <= LINALG_SOLVED_MAX(s->t.dtype))
		return linalg_solve_block(s, launch);
	half = linalg_half(n, LINALG_SOLVED_MAX(s->t.dtype));
	rest = n - half;
	first.t = linalg_batch_block(&s->t, 0, 0, half, half);
	first.x = linalg_batch_block(&s->x, 0, 0, half, s->x.cols);
	second.t = linalg_batch_block(&s->t, half, half, rest, rest);
	second.x = linalg_batch_block(&s->x, half, 0, rest, s->x.cols);
	struct linalg_batch below = linalg_batch_block(&s->t, half, 0, rest, half);

	if ((rc = linalg_solve_all(&first, launch)) < 0 ||
	    (rc = linalg_subtract_product(&below, s->conjugated, &first.x, false, &second.x, launch)) < 0)
		return rc;
	return linalg_solve_all(&second, launch);
}

/* ---- Time ---- */

#define STEP_NS_MAX 40e6

bool linalg_steps_are_short(const struct op_args *args, unsigned a, unsigned v,
                            double (*time_ns)(const struct op_args *args), const char **ret_why_not)
{
	struct op_args step = *args, later;

	*ret_why_not = "takes matrices of which this GPU does a step, some columns, within 40 ms";
	for (unsigned i = 0; i < args->op->n_operands; i++)
		for (uint32_t d = 0; d < 2 && !view_is_absent(&step.views[i]); d++)
			step.views[i].shape[d] = 1;
	args->op->step_part(&step, 0, 0, 1);
	later = step;
	later.views[a] = step.views[v];
	return time_ns(&step) <= STEP_NS_MAX && time_ns(&later) <= STEP_NS_MAX;
}

double linalg_pass_ns(const struct op_args *args, unsigned a, unsigned v)
{
	struct op_args part = *args;

	if (linalg_begin(args) > 0)
		part.views[a] = part.views[v];
	return cuda_memory_ns(&part);
}

/* What products of blocks reach, of an H200's 50 TFLOP/s; f64 takes as long on its tensor cores. */
double linalg_products_ns(kops_dtype dtype, double flops)
{
	const double per_clock = 120; /* of a multiprocessor */
	double slower = dtype_component(dtype) == KOPS_F64
	                    ? fmax(cuda_device_attribute(cudaDevAttrSingleToDoublePrecisionPerfRatio) / 2.0, 1)
	                    : 1;

	return cuda_ns_of_clocks(flops / per_clock) * slower;
}
