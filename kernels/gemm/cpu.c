/*
 * gemm on the CPU.
 *
 * openblas: cblas_sgemm, dgemm, cgemm or zgemm per batch, straight from the views where each operand has one
 * unit stride and a leading dimension that fits an int. Any other operand (f16, bf16, gaps, negative or zero
 * strides) is packed to the workspace first, 16-bit types as f32, and such a c is written back.
 *
 * reference: plain loops.
 *
 * Packing keeps the axis of the smaller stride innermost, and cblas takes the result as it is or
 * transposed, so that memory is read along its lines.
 */
#include <cblas.h>
#include <float.h>
#include <limits.h>
#include <math.h>

#include "common/cpu.h"
#include "common/half.h"
#include "common/threads.h"
#include "gemm/cpu_finish.h"
#include "gemm/gemm.h"

enum { A = GEMM_A, B = GEMM_B, C = GEMM_C };

/* Those that OpenBLAS takes. */
static const unsigned factors[] = {A, B, C};

#define PACK_GRAIN     (64 * 1024) /* elements per part */
#define PACK_BYTES_FEW (1 << 20)

/* OpenBLAS computes m * n * k up to this in the calling thread: SMP_THRESHOLD_MIN times
 * GEMM_MULTITHREAD_THRESHOLD in its sources. Newer ones take gemv for vectors, with a limit of its own. */
#define BLAS_ALONE_MAX         262144.0
#define BLAS_ALONE_MAX_COMPLEX 32768.0
#define BLAS_ALONE_MAX_VECTOR  9216.0

/* One operand as cblas takes it. transposed: against row-major order. */
struct operand {
	const struct view *view;
	bool packed, transposed, conjugated;
	int ld;
	char *data; /* of the current batch */
};

static bool is_half(kops_dtype dtype)
{
	return dtype == KOPS_F16 || dtype == KOPS_BF16;
}

/* Of numbers of this type, or of their parts. */
static bool is_double(kops_dtype dtype)
{
	return dtype_component(dtype) == KOPS_F64;
}

/* What OpenBLAS computes in. */
static kops_dtype packed_dtype(kops_dtype dtype)
{
	return is_half(dtype) ? KOPS_F32 : dtype;
}

/* The gemm rules (op.c) have made strides of axes with one index fit this test. */
static bool is_row_major(uint64_t cols, int64_t row_stride, int64_t col_stride)
{
	return col_stride == 1 && row_stride >= (int64_t)cols && row_stride <= INT_MAX;
}

static void describe_packed(struct operand *o)
{
	const struct view *v = o->view;

	o->packed = true;
	o->transposed = stride_magnitude(v->strides[1]) < stride_magnitude(v->strides[2]);
	o->ld = (int)v->shape[o->transposed ? 1 : 2];
}

/* A matrix of one row or column is both: then as it was given, for OpenBLAS's bits depend on it. */
static bool is_given_by_columns(const struct op_args *args, unsigned i)
{
	const struct gemm_params *p = &args->params.gemm;
	const struct view *v = &args->views[i];

	return ((i == A && p->a_by_columns) || (i == B && p->b_by_columns)) &&
	       (v->shape[1] == 1 || (v->shape[2] == 1 && v->strides[1] == 1)) && v->strides[2] <= INT_MAX;
}

static struct operand describe(const struct op_args *args, unsigned i)
{
	const struct view *v = &args->views[i];
	const struct gemm_params *p = &args->params.gemm;
	struct operand o = {.view = v, .conjugated = (i == A && p->conj_a) || (i == B && p->conj_b)};
	bool direct = !is_half(v->dtype);

	if (direct && is_given_by_columns(args, i)) {
		o.transposed = true;
		o.ld = (int)(v->shape[2] == 1 ? (int64_t)v->shape[1] : v->strides[2]);
	} else if (direct && is_row_major(v->shape[2], v->strides[1], v->strides[2])) {
		o.ld = (int)v->strides[1];
	} else if (direct && is_row_major(v->shape[1], v->strides[2], v->strides[1])) {
		o.transposed = true;
		o.ld = (int)v->strides[2];
	} else {
		describe_packed(&o);
	}
	o.ld = o.ld ? o.ld : 1;
	return o;
}

/*
 * Where neither A nor B changes along K, its K equal terms are one term K times over. Added up one by one they
 * would all round the same way, and the error would grow with K.
 */
static struct op_args fold_equal_terms(const struct op_args *args)
{
	struct op_args folded = *args;
	struct view *a = &folded.views[A], *b = &folded.views[B];
	double alpha = args->params.gemm.alpha * (double)a->shape[2],
	       alpha_imag = args->params.gemm.alpha_imag * (double)a->shape[2];

	if (a->shape[2] > 1 && a->strides[2] == 0 && b->strides[1] == 0 && fabs(alpha) <= FLT_MAX &&
	    fabs(alpha_imag) <= FLT_MAX) {
		folded.params.gemm.alpha = alpha;
		folded.params.gemm.alpha_imag = alpha_imag;
		a->shape[2] = b->shape[1] = 1;
	}
	return folded;
}

static bool supports(const struct op_args *args, const char **ret_why_not)
{
	struct op_args folded = fold_equal_terms(args);
	const struct view *a = &folded.views[A], *c = &folded.views[C];

	*ret_why_not = "takes extents up to 2147483647";
	return c->shape[1] <= INT_MAX && c->shape[2] <= INT_MAX && a->shape[2] <= INT_MAX;
}

/* UINT64_MAX where they are more: two extents below 2^31 and the 16 bytes of c128 do not always fit. */
static uint64_t packed_bytes(const struct op_args *args, unsigned i)
{
	struct operand o = describe(args, i);
	uint64_t bytes;

	if (!o.packed)
		return 0;
	if (__builtin_mul_overflow(o.view->shape[1] * o.view->shape[2], dtype_size(packed_dtype(o.view->dtype)),
	                           &bytes))
		return UINT64_MAX;
	return cpu_align(bytes);
}

static uint64_t workspace(const struct op_args *args)
{
	struct op_args folded = fold_equal_terms(args);
	uint64_t total = 0;

	for (unsigned i = 0; i < 3 && gemm_has_product(args); i++)
		if (__builtin_add_overflow(total, packed_bytes(&folded, factors[i]), &total))
			return UINT64_MAX;
	return total;
}

/* ---- Lines between views and the workspace ---- */

/* Elements of `from` to those of `to`, of a type and a stride each; of complex numbers both parts. */
static void convert(void *to, kops_dtype to_dtype, int64_t to_stride, const void *from, kops_dtype from_dtype,
                    int64_t from_stride, int64_t n)
{
	kops_dtype to_part = dtype_component(to_dtype), from_part = dtype_component(from_dtype);
	unsigned parts = dtype_components(to_dtype);

	for (int64_t i = 0; i < n; i++)
		for (unsigned part = 0; part < parts; part++)
			half_store(to, to_part, i * to_stride * parts + part,
			           half_load(from, from_part, i * from_stride * parts + part));
}

static void gather(void *to, kops_dtype dtype, const void *from, int64_t stride, int64_t n)
{
	if (is_half(dtype) && stride == 1)
		half_widen(to, from, dtype, n);
	else
		convert(to, packed_dtype(dtype), 1, from, dtype, stride, n);
}

static void scatter(void *to, kops_dtype dtype, int64_t stride, const void *from, int64_t n)
{
	if (is_half(dtype) && stride == 1)
		half_narrow(to, dtype, from, n);
	else
		convert(to, dtype, stride, from, packed_dtype(dtype), 1, n);
}

struct packing {
	const struct operand *o;
	char *source; /* element (0, 0) of this batch's matrix in the view */
	bool back;    /* workspace to view */
	unsigned n_parts;
};

static void pack_part(void *ctx, unsigned part)
{
	const struct packing *p = ctx;
	const struct view *v = p->o->view;
	unsigned line = p->o->transposed ? 2 : 1, along = p->o->transposed ? 1 : 2;
	int64_t n = (int64_t)v->shape[along], size = (int64_t)dtype_size(packed_dtype(v->dtype));
	uint64_t from = threads_bound(v->shape[line], part, p->n_parts);
	uint64_t to = threads_bound(v->shape[line], part + 1, p->n_parts);

	for (int64_t i = (int64_t)from; i < (int64_t)to; i++) {
		char *source = p->source + i * v->strides[line] * (int64_t)dtype_size(v->dtype);
		char *packed = p->o->data + i * n * size;
		if (p->back)
			scatter(source, v->dtype, v->strides[along], packed, n);
		else
			gather(packed, v->dtype, source, v->strides[along], n);
	}
}

static void pack(const struct operand *o, char *source, bool back)
{
	struct packing p = {.o = o, .source = source, .back = back};

	p.n_parts = threads_parts(o->view->shape[1] * o->view->shape[2], PACK_GRAIN);
	threads_run(p.n_parts, pack_part, &p);
}

/* ---- The product ---- */

static CBLAS_TRANSPOSE flag(const struct operand *o, const struct operand *c)
{
	if (o->transposed == c->transposed)
		return o->conjugated ? CblasConjNoTrans : CblasNoTrans;
	return o->conjugated ? CblasConjTrans : CblasTrans;
}

static void multiply(const struct op_args *args, const struct operand *a, const struct operand *b,
                     const struct operand *c)
{
	const struct gemm_params *p = &args->params.gemm;
	CBLAS_ORDER order = c->transposed ? CblasColMajor : CblasRowMajor;
	int m = (int)c->view->shape[1], n = (int)c->view->shape[2], k = (int)a->view->shape[2];
	const double alpha[] = {p->alpha, p->alpha_imag}, beta[] = {p->beta, p->beta_imag};
	const float alpha32[] = {(float)alpha[0], (float)alpha[1]}, beta32[] = {(float)beta[0], (float)beta[1]};

	if (c->view->dtype == KOPS_C128)
		cblas_zgemm(order, flag(a, c), flag(b, c), m, n, k, alpha, a->data, a->ld, b->data, b->ld, beta,
		            c->data, c->ld);
	else if (c->view->dtype == KOPS_C64)
		cblas_cgemm(order, flag(a, c), flag(b, c), m, n, k, alpha32, a->data, a->ld, b->data, b->ld,
		            beta32, c->data, c->ld);
	else if (c->view->dtype == KOPS_F64)
		cblas_dgemm(order, flag(a, c), flag(b, c), m, n, k, p->alpha, (const double *)a->data, a->ld,
		            (const double *)b->data, b->ld, p->beta, (double *)c->data, c->ld);
	else
		cblas_sgemm(order, flag(a, c), flag(b, c), m, n, k, alpha32[0], (const float *)a->data, a->ld,
		            (const float *)b->data, b->ld, beta32[0], (float *)c->data, c->ld);
}

static char *matrix_of(const struct view *v, uint64_t batch)
{
	return (char *)v->data + (int64_t)batch * v->strides[0] * (int64_t)dtype_size(v->dtype);
}

static void load_input(struct operand *o, uint64_t batch)
{
	char *source = matrix_of(o->view, batch);

	if (!o->packed)
		o->data = source;
	else if (batch == 0 || o->view->strides[0] != 0)
		pack(o, source, false);
}

static void run_batch(const struct op_args *args, struct operand *a, struct operand *b, struct operand *c,
                      uint64_t batch)
{
	char *result = matrix_of(c->view, batch);

	load_input(a, batch);
	load_input(b, batch);
	if (!c->packed)
		c->data = result;
	else if (gemm_reads_old(args))
		pack(c, result, false);
	multiply(args, a, b, c);
	if (gemm_finishes(args))
		gemm_cpu_finish(args, batch, &(struct gemm_sums){c->data, c->transposed, c->ld});
	if (c->packed)
		pack(c, result, true);
}

static int launch_openblas(const struct op_args *args, const struct launch *launch)
{
	struct op_args folded = fold_equal_terms(args);
	char *space = launch->workspace;
	struct operand o[3];

	if (!gemm_has_product(args))
		return cpu_reference_launch(args, launch);
	for (unsigned i = 0; i < 3; i++) {
		o[i] = describe(&folded, factors[i]);
		if (!o[i].packed)
			continue; /* and there may be no workspace */
		o[i].data = space;
		space += packed_bytes(&folded, factors[i]);
	}
	for (uint64_t batch = 0; batch < args->views[C].shape[0]; batch++)
		run_batch(&folded, &o[0], &o[1], &o[2], batch);
	return 0;
}

static bool exclusive(const struct op_args *args)
{
	struct op_args folded = fold_equal_terms(args);
	const struct view *a = &folded.views[A], *c = &folded.views[C];
	bool is_vector = c->shape[1] == 1 || c->shape[2] == 1;
	double alone_max = is_vector               ? BLAS_ALONE_MAX_VECTOR
	                   : gemm_is_complex(args) ? BLAS_ALONE_MAX_COMPLEX
	                                           : BLAS_ALONE_MAX;

	return openblas_get_num_threads() > 1 && gemm_has_product(args) &&
	       (double)c->shape[1] * (double)c->shape[2] * (double)a->shape[2] > alone_max;
}

/* ---- Time ---- */

/* Of a packed operand: its elements converted, and the workspace written and read. */
static double packing_ns(const struct view *v, bool transposed, double matrices)
{
	const double element_ns = 1.2, line_ns = 5;
	double elements = (double)v->shape[1] * (double)v->shape[2];
	uint64_t lines = v->shape[transposed ? 2 : 1];

	return matrices * (elements * element_ns + (double)lines * line_ns) /
	       cpu_threads(fmin((double)lines, elements / PACK_GRAIN));
}

/* OpenBLAS works with threads on C's columns as it sees them, and copies A and B into panels. */
static double product_ns(const struct op_args *args, bool c_transposed)
{
	const struct view *a = &args->views[A], *c = &args->views[C];
	bool wide = is_double(c->dtype);
	const double flop_ns = wide ? 1 / 12.0 : 1 / 23.0, panel_ns = 0.75, call_ns = 110;
	double m = (double)c->shape[1], n = (double)c->shape[2], k = (double)a->shape[2];
	double blocks = fmax(1, m * n / 1024), columns = (c_transposed ? m : n) / 32;
	double flops = (gemm_is_complex(args) ? 8 : 2) * m * n * k;

	return call_ns + flops * flop_ns / cpu_threads(blocks) +
	       (m + n) * k * dtype_components(c->dtype) * panel_ns * (wide ? 1.3 : 1) / cpu_threads(columns);
}

static double time_ns(const struct op_args *args)
{
	struct op_args folded = fold_equal_terms(args);
	double batch = (double)args->views[C].shape[0], ns = 0, memory_ns = 0;
	double parts = (double)args->views[C].shape[1] * (double)args->views[C].shape[2] / 1024;

	if (!gemm_has_product(args)) /* C is scaled by plain loops */
		return (double)view_elements(&args->views[C]) * 3 + cpu_view_ns(&args->views[C]);
	for (unsigned f = 0; f < 3; f++) {
		unsigned i = factors[f];
		const struct view *v = &folded.views[i];
		double matrices = v->strides[0] != 0 ? batch : 1;
		/* C twice: OpenBLAS scales it first. */
		memory_ns += cpu_view_ns(v) * (i == C ? 2 : 1);
		struct operand o = describe(&folded, i);
		if (o.packed)
			ns += packing_ns(v, o.transposed, matrices) * (i == C && gemm_reads_old(args) ? 2 : 1);
	}
	if (gemm_finishes(args))
		ns += gemm_cpu_finish_ns(args);
	return ns + batch * product_ns(&folded, describe(&folded, C).transposed) +
	       memory_ns / cpu_threads(parts);
}

/*
 * Not below openblas's, which computes the smallest products as fast: an element's bits are then those that
 * OpenBLAS gives for the same call, whatever the size. LAPACK relies on one arithmetic. Where openblas would
 * pack operands into much memory, which a device may not have, either may be faster.
 */
static double reference_ns(const struct op_args *args)
{
	const char *why_not;
	double ns = cpu_reference_ns(args);

	return supports(args, &why_not) && workspace(args) <= PACK_BYTES_FEW ? fmax(ns, time_ns(args)) : ns;
}

static const struct kernel kernels[] = {
    {.name = "openblas",
     .idea = "OpenBLAS sgemm / dgemm / cgemm / zgemm; operands it cannot take, and f16 and bf16 as f32, packed "
             "first",
     .dtypes = "f32 f64 f16 bf16 c64 c128",
     .takes = "any strides",
     .supports = supports,
     .workspace = workspace,
     .time_ns = time_ns,
     .exclusive = exclusive,
     .carries = true,
     .launch = launch_openblas},
    CPU_REFERENCE_KERNEL_OF("f32 f64 f16 bf16 c64 c128", reference_ns),
};

const struct kernel_list gemm_cpu_kernels = {kernels, sizeof kernels / sizeof kernels[0]};
