/*
 * A complex product as one of real numbers, with twice the K and twice the columns: c64, C = α·op(A)·op(B) +
 * β·C with real α and β, by f16x3 (f16x3.cu).
 *
 *     [re im re im …] · [ re im …]  =  [re im re im …]
 *                       [-im re …]
 *
 * A and C are taken as they lie, if their rows are without gaps; else A is copied. Of B each number is written
 * four times. Neither takes long: 4 % at 4096³. Conjugates are signs in B. Errors are f16x3's, of sums of 2K
 * products.
 */
#include "gemm/kernels.h"

#include "common/launch.cuh"
#include "gemm/problem.h"

namespace
{

constexpr int EXPAND_THREADS = 256, EXPAND_BLOCKS_PER_MULTIPROCESSOR = 16;
constexpr uint64_t EXTENT_MAX = (uint64_t)1 << 40;
constexpr double WORKSPACE_MAX = 0x1p35;
constexpr double EXPAND_LAUNCH_NS = 2000;

/* Lines of complex numbers, of which one or two of reals become. */
struct expansion {
	const float2 *from;
	float2 *to;                                      /* dense */
	int64_t batch_stride, line_stride, along_stride; /* of numbers */
	uint64_t lines, length, numbers;                 /* numbers: of all batches */
	float first_im, second_re, second_im;            /* signs */
	bool crosses; /* the two lines are columns: of their pairs each has one part of each */
};

/* COPIES: a line becomes one, as it is. */
template <bool COPIES> __global__ void __launch_bounds__(EXPAND_THREADS) expand(expansion e)
{
	uint64_t step = (uint64_t)gridDim.x * EXPAND_THREADS;

	for (uint64_t i = (uint64_t)blockIdx.x * EXPAND_THREADS + threadIdx.x; i < e.numbers; i += step) {
		uint64_t line = i / e.length, along = i % e.length;
		uint64_t batch = line / e.lines;
		float2 x = e.from[(int64_t)batch * e.batch_stride + (int64_t)(line % e.lines) * e.line_stride +
		                  (int64_t)along * e.along_stride];
		if (COPIES) {
			e.to[i] = x;
			continue;
		}
		float2 first = {x.x, e.first_im * x.y}, second = {e.second_im * x.y, e.second_re * x.x};
		if (e.crosses) {
			float im = first.y;
			first.y = second.x;
			second.x = im;
		}
		e.to[line * 2 * e.length + along] = first;
		e.to[(line * 2 + 1) * e.length + along] = second;
	}
}

/* What lies where. */
struct real_product {
	gemm_problem p; /* with C by rows */
	bool conj_left, conj_right, copies_left, right_by_k;
	uint64_t left_bytes, right_bytes; /* of the workspace */
	op_args args;
};

uint64_t batches_of(const gemm_problem &p, const gemm_operand &o)
{
	return o.batch ? p.batch : 1;
}

uint64_t padded(uint64_t bytes)
{
	return (bytes + 255) / 256 * 256;
}

view real_view(const gemm_operand &o, uint64_t batch, uint64_t rows, uint64_t cols)
{
	view v = {};

	v.data = o.data;
	v.dtype = KOPS_F32;
	v.rank = 3;
	v.shape[0] = batch;
	v.shape[1] = rows;
	v.shape[2] = cols;
	v.strides[0] = o.batch;
	v.strides[1] = o.row;
	v.strides[2] = o.col;
	return v;
}

/* Rows of complex numbers without gaps as rows of reals. */
gemm_operand as_reals(const gemm_operand &o)
{
	return {o.data, 2 * o.batch, 2 * o.row, 1};
}

/* base: the workspace; NULL where only sizes matter. */
real_product real_product_of(const op_args *args, char *base)
{
	gemm_problem given = gemm_problem_of(args);
	const gemm_params &params = args->params.gemm;
	bool is_turned = gemm_is_turned(&given);
	real_product r = {};

	r.p = gemm_by_rows(&given);
	const gemm_problem &p = r.p;
	r.conj_left = is_turned ? params.conj_b : params.conj_a;
	r.conj_right = is_turned ? params.conj_a : params.conj_b;
	r.copies_left = p.a.col != 1;
	r.right_by_k = stride_magnitude(p.b.col) <= stride_magnitude(p.b.row);
	uint64_t of_left = batches_of(p, p.a), of_right = batches_of(p, p.b);
	r.left_bytes = r.copies_left ? padded(of_left * p.m * p.k * sizeof(float2)) : 0;
	r.right_bytes = padded(of_right * p.k * p.n * 2 * sizeof(float2));

	gemm_operand a = as_reals(p.a), c = as_reals(p.c);
	gemm_operand b = {base ? base + r.left_bytes : nullptr, 0, (int64_t)(2 * p.n), 1};
	if (r.copies_left)
		a = {base, of_left > 1 ? (int64_t)(2 * p.m * p.k) : 0, (int64_t)(2 * p.k), 1};
	if (!r.right_by_k)
		b.row = 1, b.col = (int64_t)(2 * p.k);
	if (of_right > 1)
		b.batch = (int64_t)(4 * p.k * p.n);
	r.args = *args;
	r.args.params.gemm.conj_a = r.args.params.gemm.conj_b = false;
	r.args.views[GEMM_A] = real_view(a, p.batch, p.m, 2 * p.k);
	r.args.views[GEMM_B] = real_view(b, p.batch, 2 * p.k, 2 * p.n);
	r.args.views[GEMM_C] = real_view(c, p.batch, p.m, 2 * p.n);
	return r;
}

void launch_expansion(void (*kernel)(expansion), const expansion &e, cudaStream_t stream)
{
	uint64_t blocks = (e.numbers + EXPAND_THREADS - 1) / EXPAND_THREADS;
	uint64_t most = (uint64_t)gemm_hopper_multiprocessors() * EXPAND_BLOCKS_PER_MULTIPROCESSOR;
	launch_form form = {dim3((unsigned)(blocks < most ? blocks : most)), dim3(EXPAND_THREADS)};

	form.early = false;
	launch_kernel(kernel, form, stream, e);
}

/* Lines of o, which go to `to`: of this length, and so far from element to element. */
expansion expansion_of(const gemm_problem &p, const gemm_operand &o, bool by_rows, uint64_t lines,
                       uint64_t length, void *to)
{
	expansion e = {};

	e.from = (const float2 *)o.data;
	e.to = (float2 *)to;
	e.batch_stride = o.batch;
	e.line_stride = by_rows ? o.row : o.col;
	e.along_stride = by_rows ? o.col : o.row;
	e.lines = lines;
	e.length = length;
	e.numbers = batches_of(p, o) * lines * length;
	return e;
}

void copy_left(const real_product &r, char *base, cudaStream_t stream)
{
	launch_expansion(expand<true>, expansion_of(r.p, r.p.a, true, r.p.m, r.p.k, base), stream);
}

/* With A conjugated, im·im is subtracted from -re·re: the second row, which A's imaginary parts meet, changes
 * its sign. */
void expand_right(const real_product &r, char *base, cudaStream_t stream)
{
	const gemm_problem &p = r.p;
	float left = r.conj_left ? -1 : 1, right = r.conj_right ? -1 : 1;
	expansion e = expansion_of(p, p.b, r.right_by_k, r.right_by_k ? p.k : p.n, r.right_by_k ? p.n : p.k,
	                           base + r.left_bytes);

	e.first_im = right;
	e.second_re = left;
	e.second_im = -left * right;
	e.crosses = !r.right_by_k;
	launch_expansion(expand<false>, e, stream);
}

} // namespace

extern "C" bool gemm_real_takes(const op_args *args, const char **ret_why_not)
{
	gemm_problem given = gemm_problem_of(args), p = gemm_by_rows(&given);
	const gemm_params &params = args->params.gemm;

	*ret_why_not = "takes c64 only";
	if (args->views[GEMM_A].dtype != KOPS_C64)
		return false;
	*ret_why_not = "needs real alpha and beta";
	if (params.alpha_imag != 0 || params.beta_imag != 0)
		return false;
	*ret_why_not = "needs rows or columns of C without gaps";
	if (p.c.col != 1)
		return false;
	*ret_why_not = "needs a stride other than 0 along K in A or B: its long sums of equal terms drift";
	if (p.a.col == 0 && p.b.row == 0)
		return false;
	*ret_why_not = "needs 16 bytes of workspace per element of A and B, and would take more than 32 GiB";
	return p.m < EXTENT_MAX && p.n < EXTENT_MAX && p.k < EXTENT_MAX &&
	       16 * (double)p.batch * ((double)p.m + (double)p.n) * (double)p.k <= WORKSPACE_MAX;
}

extern "C" bool gemm_real_supports(const op_args *args, const char **ret_why_not)
{
	if (!gemm_real_takes(args, ret_why_not))
		return false;
	real_product r = real_product_of(args, nullptr);
	return gemm_f16x3_supports(&r.args, ret_why_not);
}

extern "C" uint64_t gemm_real_workspace(const op_args *args)
{
	real_product r = real_product_of(args, nullptr);

	return r.left_bytes + r.right_bytes + gemm_f16x3_workspace(&r.args);
}

extern "C" double gemm_real_ns(const op_args *args)
{
	real_product r = real_product_of(args, nullptr);
	double bytes = 2.0 * (double)r.left_bytes + 1.5 * (double)r.right_bytes;

	return gemm_f16x3_ns(&r.args) + EXPAND_LAUNCH_NS * (r.copies_left ? 2 : 1) + cuda_ns_of_bytes(bytes, 1);
}

extern "C" CUDA_LAUNCH(gemm_real)
{
	char *base = (char *)launch->workspace;
	real_product r = real_product_of(args, base);
	struct launch rest = *launch;

	if (r.copies_left)
		copy_left(r, base, cuda_stream(launch));
	expand_right(r, base, cuda_stream(launch));
	rest.workspace = base + r.left_bytes + r.right_bytes;
	rest.workspace_bytes = launch->workspace_bytes - r.left_bytes - r.right_bytes;
	return gemm_f16x3(&r.args, &rest);
}
