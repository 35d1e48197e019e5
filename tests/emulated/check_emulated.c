/*
 * check_emulated: compares CUDA kernels for Hopper with their op's reference, on an emulated GPU (emulator.h).
 * The sources are those of the CUDA module; CUDA itself is not needed.
 *
 * Exit status: 0 right, 1 wrong, 2 usage.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "emulated.h"
#include "gemm/kernels.h"
#include "gemm/problem.h"
#include "layer_norm/pieces.h"
#include "reduce/split.h"
#include "seed.h"
#include "softmax/pieces.h"
#include "softmax/ring.h"

#define WORKSPACE_ALIGNMENT 256
#define GUARD_BYTES         256
#define GUARD               0x5a

CUDA_LAUNCH(gemm_pipelined);
CUDA_LAUNCH(softmax_fused);
CUDA_TOGETHER(softmax_fused_together);
CUDA_TOGETHER(copy_vector_together);
uint64_t softmax_fused_workspace(const struct op_args *args);
CUDA_LAUNCH(layer_norm_kept);
CUDA_LAUNCH(gather_rows_wide);
CUDA_TOGETHER(gather_rows_wide_together);
CUDA_LAUNCH(gather_elements);
CUDA_TOGETHER(gather_elements_together);
CUDA_LAUNCH(add_float4x);
CUDA_LAUNCH(add_scalar);
CUDA_LAUNCH(subtract_float4);
CUDA_LAUNCH(subtract_scalar);
CUDA_LAUNCH(unary_float4x);
CUDA_TOGETHER(unary_float4x_together);
CUDA_LAUNCH(unary_scalar);
CUDA_LAUNCH(reduce_rows);
CUDA_LAUNCH(reduce_strided);

/* ---- Problems ---- */

/* Returns an extent near the ends of tiles, or any. */
static uint64_t random_extent(uint64_t most, struct random *r)
{
	uint64_t tile = (uint64_t)16 << random_below(r, 5);

	if (random_chance(r, 40) || tile >= most)
		return 1 + random_below(r, most);
	return tile * (1 + random_below(r, most / tile)) + random_below(r, 3) - 1;
}

/* Makes lines of any pitch, or at multiples of `unit` elements; one matrix per batch, or one for all. */
static struct view random_matrix(kops_dtype dtype, uint64_t batch, uint64_t rows, uint64_t cols, uint64_t unit,
                                 struct random *r)
{
	struct view v = {.dtype = dtype, .rank = 3, .shape = {batch, rows, cols}};
	bool by_columns = random_chance(r, 50);
	uint64_t length = by_columns ? rows : cols, lines = by_columns ? cols : rows;
	uint64_t pitch = (length + unit - 1) / unit * unit + unit * random_below(r, 3);

	v.strides[0] = (int64_t)(pitch * lines);
	v.strides[1] = by_columns ? 1 : (int64_t)pitch;
	v.strides[2] = by_columns ? (int64_t)pitch : 1;
	return v;
}

static void shape_product(struct problem *p, kops_dtype dtype, const uint64_t mnk[3], uint64_t unit,
                          struct random *r)
{
	uint64_t batch = random_chance(r, 70) ? 1 : 1 + random_below(r, 3);
	uint64_t of_a = random_chance(r, 30) ? 1 : batch, of_b = random_chance(r, 30) ? 1 : batch;

	p->args.views[0] = random_matrix(dtype, of_a, mnk[0], mnk[2], unit, r);
	p->args.views[1] = random_matrix(dtype, of_b, mnk[2], mnk[1], unit, r);
	p->args.views[GEMM_C] = random_matrix(dtype, batch, mnk[0], mnk[1], unit, r);
	p->args.params.gemm.alpha = random_chance(r, 50) ? 1 : random_unit(r);
	p->args.params.gemm.beta = random_chance(r, 50) ? 0 : random_unit(r);
	p->args.params.gemm.precision = KOPS_PRECISION_F32;
	if (random_chance(r, 40))
		random_finish(p, r);
}

/* wide: a wide range of numbers, and sums long enough for f16x3 to continue with triples of bf16. */
static bool make_f32(struct problem *p, bool wide, bool neat, struct random *r)
{
	uint64_t most = wide ? 200 : 400;
	uint64_t k = wide ? 768 + random_below(r, 70) : 64 + random_below(r, 300);
	uint64_t mnk[3] = {random_extent(most, r), random_extent(most, r), k};

	p->large = wide ? 2 : 0;
	shape_product(p, KOPS_F32, mnk, neat ? 4 : 1, r);
	return problem_complete(p, neat, true, r);
}

static bool make_ordinary(struct problem *p, struct random *r)
{
	return make_f32(p, random_chance(r, 30), random_chance(r, 50), r);
}

/* Makes batches of products. unit: elements in 16 bytes. */
static bool make_batch(struct problem *p, kops_dtype dtype, uint64_t unit, struct random *r)
{
	bool neat = random_chance(r, 60);
	uint64_t mnk[3] = {random_extent(130, r), random_extent(130, r), random_extent(200, r)};

	do
		shape_product(p, dtype, mnk, neat ? unit : 1, r);
	while (p->args.views[GEMM_C].shape[0] == 1);
	return problem_complete(p, neat, true, r);
}

static bool make_small(struct problem *p, struct random *r)
{
	return make_batch(p, KOPS_F32, 4, r);
}

static bool make_small_f64(struct problem *p, struct random *r)
{
	return make_batch(p, KOPS_F64, 2, r);
}

static bool make_small_16(struct problem *p, struct random *r)
{
	return make_batch(p, random_chance(r, 50) ? KOPS_F16 : KOPS_BF16, 8, r);
}

static bool make_wide(struct problem *p, struct random *r)
{
	return make_f32(p, true, random_chance(r, 50), r);
}

/* Makes few long sums of 16-bit numbers. */
static bool make_long_sums(struct problem *p, struct random *r)
{
	uint64_t mnk[3] = {1 + random_below(r, 40), 1 + random_below(r, 40), 300 + random_below(r, 900)};
	bool neat = random_chance(r, 50);

	shape_product(p, random_chance(r, 50) ? KOPS_F16 : KOPS_BF16, mnk, neat ? 8 : 1, r);
	return problem_complete(p, neat, true, r);
}

/* Makes products of 16-bit numbers for each form of tile, with lines that begin anywhere or at multiples of 16
 * bytes. */
static bool make_ragged(struct problem *p, struct random *r)
{
	static const uint64_t sides[] = {16, 32, 64, 140, 300};
	uint64_t mnk[3] = {random_extent(sides[random_below(r, 5)], r),
	                   random_extent(sides[random_below(r, 5)], r), random_extent(100, r)};
	bool neat = random_chance(r, 30);

	shape_product(p, random_chance(r, 50) ? KOPS_F16 : KOPS_BF16, mnk, neat ? 8 : 1, r);
	return problem_complete(p, neat, true, r);
}

/* Aligns operands as the copy engine requires. */
static bool make_aligned(struct problem *p, struct random *r)
{
	return make_f32(p, false, true, r);
}

static bool make_narrow(struct problem *p, struct random *r)
{
	static const kops_dtype dtypes[] = {KOPS_F16, KOPS_BF16, KOPS_F32};
	uint64_t mnk[3] = {random_extent(600, r), random_extent(600, r), random_extent(300, r)};

	shape_product(p, dtypes[random_below(r, 3)], mnk, 8, r);
	p->args.params.gemm.precision = KOPS_PRECISION_TF32;
	return problem_complete(p, true, true, r);
}

static bool make_many_tiles(struct problem *p, bool neat, struct random *r)
{
	uint64_t mnk[3] = {440 + random_below(r, 73), 440 + random_below(r, 73), 580 + random_below(r, 120)};

	shape_product(p, random_chance(r, 50) ? KOPS_F16 : KOPS_BF16, mnk, neat ? 8 : 1, r);
	if (random_chance(r, 60))
		p->args.params.gemm.beta = 0;
	return problem_complete(p, neat, true, r);
}

/* Gives each block several of wgmma's wide tiles, which share operands; that takes long sums. */
static bool make_tiles(struct problem *p, struct random *r)
{
	return make_many_tiles(p, true, r);
}

/* The same with lines that begin anywhere. */
static bool make_loose_tiles(struct problem *p, struct random *r)
{
	return make_many_tiles(p, false, r);
}

/* Makes few tiles and long sums, so that wgmma splits K. */
static bool make_splits(struct problem *p, struct random *r)
{
	static const kops_dtype dtypes[] = {KOPS_F16, KOPS_BF16, KOPS_F32};
	uint64_t mnk[3] = {random_extent(200, r), random_extent(200, r), 900 + random_below(r, 1200)};

	shape_product(p, dtypes[random_below(r, 3)], mnk, 8, r);
	p->args.params.gemm.precision = KOPS_PRECISION_TF32;
	return problem_complete(p, true, true, r);
}

static kops_dtype random_float(struct random *r)
{
	static const kops_dtype dtypes[] = {KOPS_F32, KOPS_F16, KOPS_BF16};

	return dtypes[random_below(r, 3)];
}

static uint64_t round_up_to_8(uint64_t n)
{
	return (n + 7) / 8 * 8;
}

/* Makes rows that are `apart` elements apart in x and in y. */
static bool make_rows_apart(struct problem *p, uint64_t rows, uint64_t cols, uint64_t apart, kops_dtype dtype,
                            struct random *r)
{
	struct view v = {.dtype = dtype, .rank = 2, .shape = {rows, cols}};

	v.strides[0] = (int64_t)apart;
	v.strides[1] = 1;
	p->args.views[0] = p->args.views[1] = v;
	op_set_defaults(&p->args);
	if (strcmp(p->args.op->name, "unary") == 0)
		p->args.params.unary.function = (enum unary_function)random_below(r, UNARY_FUNCTIONS);
	if (strcmp(p->args.op->name, "softmax") != 0)
		return problem_complete(p, true, true, r);
	p->args.params.softmax.scale = random_chance(r, 40) ? 1 : 4 * random_unit(r);
	p->args.params.softmax.log = random_chance(r, 30);
	return problem_complete(p, true, true, r);
}

/* Makes rows that begin anywhere, but alike in x and y. */
static bool make_rows(struct problem *p, uint64_t rows, uint64_t cols, kops_dtype dtype, struct random *r)
{
	uint64_t apart = random_chance(r, 30) ? round_up_to_8(cols) : cols + random_below(r, 9);

	return make_rows_apart(p, rows, cols, apart, dtype, r);
}

/* Makes rows that begin at multiples of 16 bytes, or all equally far behind one. */
static bool make_alike_rows(struct problem *p, struct random *r)
{
	uint64_t cols = random_extent(3000, r);

	return make_rows_apart(p, 2 + random_below(r, 12), cols, round_up_to_8(cols), random_float(r), r);
}

/* Makes rows of a few elements, many of less than 16 bytes, or of more than the lanes of a warp keep. */
static bool make_short_rows(struct problem *p, struct random *r)
{
	uint64_t cols = random_chance(r, 50) ? 1 + random_below(r, 9) : random_extent(3000, r);

	return make_rows(p, 1 + random_below(r, 40), cols, random_float(r), r);
}

/* Makes rows a little longer than `bytes`. */
static bool make_rows_beyond(struct problem *p, uint64_t rows, uint64_t bytes, struct random *r)
{
	kops_dtype dtype = random_float(r);

	return make_rows(p, rows, bytes / dtype_size(dtype) + 1 + random_below(r, 2000), dtype, r);
}

/* Makes rows of a few pieces, or one with more pieces than a warp has lanes. */
static bool make_long_rows(struct problem *p, struct random *r)
{
	return random_chance(r, 30) ? make_rows_beyond(p, 1, 1 << 20, r)
	                            : make_rows_beyond(p, 1 + random_below(r, 5), 128 << 10, r);
}

/* Makes more pieces for each block than it keeps at a time. */
static bool make_many_rows(struct problem *p, struct random *r)
{
	return make_rows_beyond(p, 3 + random_below(r, 8), 128 << 10, r);
}

/* Returns a type that reduce takes. */
static kops_dtype random_real(struct random *r)
{
	return random_chance(r, 25) ? KOPS_F64 : random_float(r);
}

/*
 * Makes up to several tiles of rows, which follow each other without gaps, or are all aligned alike to 16
 * bytes, or neither.
 */
static bool make_rows_for(kops_reduction kind, struct problem *p, struct random *r)
{
	kops_dtype dtype = random_real(r);
	uint64_t cols = random_chance(r, 50) ? 1 + random_below(r, 40) : random_extent(1100, r);

	if (random_chance(r, 30))
		cols = (cols + 7) / 8 * 8; /* whole vectors, wherever x begins */
	uint64_t rows = 1 + random_below(r, random_chance(r, 30) ? 40 : 1 + 60000 / cols);
	struct view x = {.dtype = dtype, .rank = 2, .shape = {rows, cols}};
	struct view y = {.dtype = dtype, .rank = 1, .shape = {rows}, .strides = {1}};

	x.strides[0] = (int64_t)(random_chance(r, 50) ? cols : (cols + 7) / 8 * 8 + random_below(r, 2));
	x.strides[1] = 1;
	p->args.views[0] = x;
	p->args.views[1] = y;
	p->args.params.reduce.kind = kind;
	return problem_complete(p, random_chance(r, 50), true, r);
}

static bool make_reduced_rows(struct problem *p, struct random *r)
{
	return make_rows_for((kops_reduction)random_below(r, 3), p, r);
}

/* Makes means of numbers whose sums leave the range. */
static bool make_largest_rows(struct problem *p, struct random *r)
{
	p->huge = true;
	return make_rows_for(KOPS_MEAN, p, r);
}

static bool make_largest_columns(struct problem *p, struct random *r)
{
	uint64_t rows = random_extent(200, r), cols = random_extent(300, r);
	kops_dtype dtype = random_real(r);

	p->huge = true;
	p->args.views[0] = (struct view){
	    .dtype = dtype, .rank = 2, .shape = {rows, cols}, .strides = {1, (int64_t)(rows + 7) / 8 * 8}};
	p->args.views[1] = (struct view){.dtype = dtype, .rank = 1, .shape = {rows}, .strides = {1}};
	p->args.params.reduce.kind = KOPS_MEAN;
	return problem_complete(p, random_chance(r, 50), true, r);
}

/* Makes a residual now and then, with or without the sum. */
static void make_residual(struct problem *p, const struct view *like, struct random *r)
{
	if (random_chance(r, 50))
		return;
	p->args.views[LAYER_NORM_RESIDUAL] = *like;
	if (random_chance(r, 60))
		p->args.views[LAYER_NORM_SUM] = *like;
}

/* Makes views that are one run each, and begin alike. */
static bool make_runs(struct problem *p, struct random *r)
{
	const struct op *op = p->args.op;
	kops_dtype dtype = random_real(r);
	uint64_t n = random_extent(6000, r);

	op_set_defaults(&p->args);
	for (unsigned i = 0; i < op->n_attributes; i++)
		if (op->attributes[i].type == ATTRIBUTE_CHOICE)
			op_set_attribute(&p->args, i, (double)random_below(r, op->attributes[i].n_choices));
	for (unsigned v = 0; v < op->n_operands; v++)
		p->args.views[v] = (struct view){.dtype = dtype, .rank = 1, .shape = {n}, .strides = {1}};
	return problem_complete(p, random_chance(r, 70), true, r);
}

/* Makes weight and bias, or one of them, or neither. */
static void make_vectors(struct problem *p, uint64_t cols, kops_dtype dtype, struct random *r)
{
	for (unsigned v = LAYER_NORM_WEIGHT; v <= LAYER_NORM_BIAS; v++)
		if (random_chance(r, 70))
			p->args.views[v] =
			    (struct view){.dtype = dtype, .rank = 1, .shape = {cols}, .strides = {1}};
}

/* Makes rows of a few elements, many for a warp; or longer ones, up to several warps for a row. */
static bool make_normed_rows(struct problem *p, struct random *r)
{
	kops_dtype dtype = random_real(r);
	uint64_t longest = LAYER_NORM_KEPT_BYTES * LAYER_NORM_KEPT_THREADS / dtype_size(dtype) - 7;
	uint64_t cols = random_extent(random_chance(r, 50) ? 300 : longest, r);
	uint64_t rows = 1 + random_below(r, cols < 300 ? 60 : 3);
	struct view v = {.dtype = dtype, .rank = 2, .shape = {rows, cols}};

	if (random_chance(r, 60))
		v.shape[1] = cols = round_up_to_8(cols);
	v.strides[0] = (int64_t)(cols + (random_chance(r, 50) ? 0 : random_below(r, 9)));
	v.strides[1] = 1;
	p->args.views[LAYER_NORM_X] = p->args.views[LAYER_NORM_Y] = v;
	make_vectors(p, cols, dtype, r);
	make_residual(p, &v, r);
	op_set_attribute(&p->args, LAYER_NORM_EPS, random_chance(r, 30) ? 0 : 1e-5);
	return problem_complete(p, random_chance(r, 60), true, r);
}

/* Makes rows of any length: shorter than a piece, or of several blocks. aligned: each index and row of y begins
 * at a multiple of 16 bytes, or equally far behind one. */
static bool make_rows_of_table(struct problem *p, bool aligned, struct random *r)
{
	kops_dtype dtype = (kops_dtype)(DTYPE_FIRST + random_below(r, DTYPE_COUNT));
	uint64_t cols = random_extent(random_chance(r, 70) ? 300 : 9000, r);
	uint64_t unit = aligned || random_chance(r, 60) ? 16 / dtype_size(dtype) : 1;
	uint64_t rows[] = {1 + random_below(r, 60), 1 + random_below(r, 60)};

	for (unsigned v = 0; v < 3; v += 2) {
		uint64_t apart = (cols + unit - 1) / unit * unit + unit * random_below(r, 3);
		p->args.views[v] = (struct view){
		    .dtype = dtype, .rank = 2, .shape = {rows[v / 2], cols}, .strides = {(int64_t)apart, 1}};
	}
	p->args.views[1] =
	    (struct view){.dtype = KOPS_I32, .rank = 1, .shape = {rows[1]}, .strides = {aligned ? 4 : 1}};
	return problem_complete(p, random_chance(r, 60), true, r);
}

static bool make_table(struct problem *p, struct random *r)
{
	return make_rows_of_table(p, false, r);
}

static bool make_aligned_table(struct problem *p, struct random *r)
{
	return make_rows_of_table(p, true, r);
}

/* Makes views of any strides. */
static bool make_anyhow(struct problem *p, struct random *r)
{
	const struct op *op = p->args.op;
	bool made;

	do {
		problem_free(p);
		made = problem_make(p, op, 0, r);
	} while (made && (view_elements(op_output_const(&p->args)) == 0 || view_is_empty(&p->args.views[0])));
	return made;
}

/* ---- Rows ---- */

/* Launches what simt uses for larger products than these. */
static int launch_simt_large(const struct op_args *args, const struct launch *launch)
{
	int status;

	return gemm_simt_large(args, launch, &status) ? status : KOPS_E_FAULT;
}

static uint32_t axis_of_batch(const struct op_args *args)
{
	return strcmp(args->op->name, "gemm") == 0 ? 0 : op_output_const(args)->rank - 2;
}

static unsigned size_of_batch(const struct op_args *args)
{
	return (unsigned)op_output_const(args)->shape[axis_of_batch(args)];
}

/* Makes as many ops of a batch of products or rows, for one launch. */
static void each_of_batch(const struct op_args *args, struct op_args ret[], const struct op_args *pointers[])
{
	uint32_t axis = axis_of_batch(args);

	for (unsigned i = 0; i < size_of_batch(args); i++) {
		ret[i] = *args;
		pointers[i] = &ret[i];
		op_narrow(&ret[i], axis, i, 1);
	}
}

static unsigned together_max(const struct op_args *args)
{
	if (strcmp(args->op->name, "gemm") != 0)
		return cuda_together_max(args);
	return args->views[0].dtype == KOPS_F32 ? gemm_simt_together_max(args) : gemm_small_together_max(args);
}

static bool are_alike(const struct op_args *args, const char **ret_why_not)
{
	unsigned n = size_of_batch(args);
	struct op_args each[TOGETHER_MAX];
	const struct op_args *pointers[TOGETHER_MAX];

	*ret_why_not = "one, or not alike";
	each_of_batch(args, each, pointers);
	for (unsigned i = 1; i < n; i++)
		if (!op_args_alike(&each[0], &each[i]))
			return false;
	return n > 1 && together_max(&each[0]) >= n;
}

typedef int (*launching)(const struct op_args *const *args, unsigned n, const struct launch *launch);

static int launch_together(launching together, const struct op_args *args, const struct launch *launch)
{
	struct op_args each[TOGETHER_MAX];
	const struct op_args *pointers[TOGETHER_MAX];

	each_of_batch(args, each, pointers);
	return together(pointers, size_of_batch(args), launch);
}

/* Gives the kernel addresses of nothing: it must look up the real ones. */
static int launch_elsewhere(launching together, const struct op_args *args, const struct launch *launch)
{
	struct op_args each[TOGETHER_MAX];
	const struct op_args *pointers[TOGETHER_MAX];
	void *addresses[TOGETHER_MAX * OP_OPERANDS_MAX];
	struct launch elsewhere = *launch;
	unsigned n = size_of_batch(args), n_views = args->op->n_operands;

	each_of_batch(args, each, pointers);
	for (unsigned i = 0; i < n; i++)
		for (unsigned v = 0; v < n_views; v++) {
			addresses[i * n_views + v] = each[i].views[v].data;
			each[i].views[v].data = (void *)(4096 + (uintptr_t)each[i].views[v].data % 256);
		}
	elsewhere.addresses = addresses;
	elsewhere.over_link = n % 2;
	return together(pointers, n, &elsewhere);
}

/* Two candidates: one tells the kernel where its ops are, the other where to look that up. */
#define TOGETHER_AND_ELSEWHERE(kernel)                                                                         \
	static int kernel##_at_once(const struct op_args *args, const struct launch *launch)                   \
	{                                                                                                      \
		return launch_together(kernel##_together, args, launch);                                       \
	}                                                                                                      \
	static int kernel##_elsewhere(const struct op_args *args, const struct launch *launch)                 \
	{                                                                                                      \
		return launch_elsewhere(kernel##_together, args, launch);                                      \
	}
TOGETHER_AND_ELSEWHERE(gemm_simt)
TOGETHER_AND_ELSEWHERE(gemm_small)
TOGETHER_AND_ELSEWHERE(softmax_fused)
TOGETHER_AND_ELSEWHERE(copy_vector)
TOGETHER_AND_ELSEWHERE(gather_rows_wide)
TOGETHER_AND_ELSEWHERE(gather_elements)
TOGETHER_AND_ELSEWHERE(unary_float4x)

/* Every element of x takes equally long. A product is one tile, so only a shorter K makes it faster. */
static double work_ns(const void *on, const struct kernel *kernel, const struct op_args *args)
{
	const struct view *x = &args->views[0];

	(void)on;
	(void)kernel;
	return (double)(strcmp(args->op->name, "gemm") == 0 ? x->shape[x->rank - 1] : view_elements(x));
}

static bool takes_all(const struct op_args *args, const char **ret_why_not)
{
	(void)args;
	(void)ret_why_not;
	return true;
}

static const struct kernel pieces = {
    .supports = takes_all, .workspace = softmax_pieces_workspace, .launch = softmax_pieces, .carries = true};

static const struct kernel norm_pieces = {.supports = takes_all,
                                          .workspace = layer_norm_pieces_workspace,
                                          .launch = layer_norm_pieces,
                                          .carries = true};

static uint64_t workspace_strided(const struct op_args *args)
{
	struct reduce_split s = reduce_split_tiles(args);

	return s.splits > 1 ? s.rows * s.splits * sizeof(double) : 0;
}

static uint64_t workspace_rows(const struct op_args *args)
{
	struct reduce_split s = reduce_split_rows(args);

	return s.splits > 1 ? s.rows * s.splits * sizeof(double) : 0;
}

static const struct kernel strided = {
    .supports = takes_all, .workspace = workspace_strided, .launch = reduce_strided, .carries = true};

static const struct kernel small = {.supports = takes_all, .launch = gemm_small, .carries = true};

static const struct kernel *kernel_of(const struct op_args *args)
{
	const char *op = args->op->name;

	return strcmp(op, "softmax") == 0      ? &pieces
	       : strcmp(op, "layer_norm") == 0 ? &norm_pieces
	       : strcmp(op, "rms_norm") == 0   ? &norm_pieces
	       : strcmp(op, "reduce") == 0     ? &strided
	                                       : &small;
}

/* Cuts the op as if it took too long: along its rows, its columns, or both. */
static void cut_up(const struct op_args *args, struct op_cut *ret)
{
	const double parts[] = {2, 5, 9};
	const double ns = work_ns(NULL, NULL, args);
	const struct part_limits limits = {work_ns, NULL, ns / parts[(uint64_t)ns % 3],
	                                   (uint64_t)ns % 2 ? 256 : UINT64_MAX};

	kernel_cut(kernel_of(args), args, &limits, ret);
}

static uint64_t workspace_of_parts(const struct op_args *args)
{
	struct op_cut cut;

	cut_up(args, &cut);
	return (kernel_workspace(kernel_of(args), args, &cut) + 15) / 16 * 16 + cut.carried_bytes;
}

static int launch_parts(const struct op_args *args, const struct launch *launch)
{
	struct op_args whole = *args;
	struct op_cut cut;
	int rc = 0;

	cut_up(args, &cut);
	whole.carried = (char *)launch->workspace + launch->workspace_bytes - cut.carried_bytes;
	for (uint32_t i = 0; i < cut.n_parts && rc == 0; i++)
		rc = kernel_launch_part(kernel_of(args), &whole, &cut, i, launch, cuda_convert);
	return rc;
}

static bool has_wide_sums(const struct op_args *args)
{
	return dtype_size(args->views[GEMM_C].dtype) == 2;
}

static uint64_t workspace_of_sums(const struct op_args *args)
{
	return has_wide_sums(args) ? view_elements(&args->views[GEMM_C]) * sizeof(float) : 0;
}

/* Computes the product by its reference, as a library would, and then what comes after it. */
static int finish_product(const struct op_args *args, const struct launch *launch)
{
	struct op_args product = *args;
	struct gemm_problem p = gemm_problem_of(args);
	struct view *c = &product.views[GEMM_C];

	product.views[GEMM_BIAS] = (struct view){.rank = 0};
	product.params.gemm.activation = UNARY_NONE;
	if (has_wide_sums(args)) {
		product.params.gemm.beta = 0;
		c->dtype = KOPS_F32;
		c->data = launch->workspace;
		view_make_dense(c);
		if (gemm_is_turned(&p)) {
			c->strides[1] = 1;
			c->strides[2] = (int64_t)c->shape[1];
		}
	}
	args->op->reference(&product);
	return gemm_finish(args, has_wide_sums(args) ? launch->workspace : NULL, NULL);
}

/* Kernels as in kernels/<op>/cuda.c, and small problems for them. Speed is not considered. */
static const struct candidate {
	const char *op, *name;
	bool (*make)(struct problem *p, struct random *r);
	unsigned slow; /* run in one of `slow` cases */
	unsigned multiprocessors[4];
	bool (*supports)(const struct op_args *args, const char **ret_why_not);
	uint64_t (*workspace)(const struct op_args *args);
	int (*launch)(const struct op_args *args, const struct launch *launch);
} kernels[] = {
    {"gemm", "f16x3", make_ordinary, 1, {2, 4, 6, 132}, NULL, gemm_f16x3_workspace, gemm_f16x3},
    {"gemm", "bf16x6", make_wide, 1, {2, 4, 6, 132}, NULL, gemm_bf16x6_workspace, gemm_bf16x6},
    {"gemm", "wgmma", make_narrow, 1, {2, 4, 6, 132}, gemm_wgmma_supports, gemm_wgmma_workspace, gemm_wgmma},
    {"gemm", "wgmma tiles", make_tiles, 4, {2, 2, 2, 2}, gemm_wgmma_supports, gemm_wgmma_workspace, gemm_wgmma},
    {"gemm",
     "wgmma loose",
     make_ragged,
     1,
     {2, 4, 6, 132},
     gemm_wgmma_supports,
     gemm_wgmma_workspace,
     gemm_wgmma},
    {"gemm",
     "wgmma loose tiles",
     make_loose_tiles,
     4,
     {2, 2, 2, 2},
     gemm_wgmma_supports,
     gemm_wgmma_workspace,
     gemm_wgmma},
    {"gemm",
     "wgmma splits",
     make_splits,
     2,
     {2, 8, 24, 132},
     gemm_wgmma_supports,
     gemm_wgmma_workspace,
     gemm_wgmma},
    {"gemm", "simt", make_ordinary, 1, {1, 8, 40, 132}, NULL, gemm_simt_workspace, gemm_simt},
    {"gemm", "simt together", make_small, 1, {1, 8, 40, 132}, are_alike, NULL, gemm_simt_at_once},
    {"gemm", "simt elsewhere", make_small, 1, {1, 8, 40, 132}, are_alike, NULL, gemm_simt_elsewhere},
    {"gemm", "small", make_small_16, 1, {1, 1, 1, 1}, NULL, NULL, gemm_small},
    {"gemm", "small in parts", make_long_sums, 1, {1, 1, 1, 1}, NULL, workspace_of_parts, launch_parts},
    {"gemm", "small together", make_small_16, 1, {1, 1, 1, 1}, are_alike, NULL, gemm_small_at_once},
    {"gemm", "small elsewhere", make_small_16, 1, {1, 1, 1, 1}, are_alike, NULL, gemm_small_elsewhere},
    {"gemm", "ragged", make_ragged, 1, {1, 1, 1, 1}, gemm_ragged_supports, gemm_ragged_workspace, gemm_ragged},
    {"gemm",
     "ragged splits",
     make_long_sums,
     1,
     {2, 8, 24, 132},
     gemm_ragged_supports,
     gemm_ragged_workspace,
     gemm_ragged},
    {"gemm", "simt large", make_aligned, 1, {1, 1, 1, 1}, NULL, gemm_simt_large_workspace, launch_simt_large},
    {"gemm", "finish", make_ordinary, 1, {1, 1, 1, 1}, NULL, NULL, finish_product},
    {"gemm", "finish f64", make_small_f64, 1, {1, 1, 1, 1}, NULL, NULL, finish_product},
    {"gemm", "finish wide", make_small_16, 1, {1, 1, 1, 1}, NULL, workspace_of_sums, finish_product},
    {"gemm", "pipelined", make_ordinary, 1, {1, 1, 1, 1}, NULL, NULL, gemm_pipelined},
    {"softmax", "pieces", make_anyhow, 3, {1, 2, 5, 9}, NULL, softmax_pieces_workspace, softmax_pieces},
    {"softmax", "pieces in parts", make_anyhow, 2, {1, 2, 5, 9}, NULL, workspace_of_parts, launch_parts},
    {"layer_norm", "kept", make_normed_rows, 1, {1, 2, 5, 9}, NULL, NULL, layer_norm_kept},
    {"layer_norm",
     "norm pieces",
     make_anyhow,
     1,
     {1, 2, 5, 9},
     NULL,
     layer_norm_pieces_workspace,
     layer_norm_pieces},
    {"layer_norm", "norm in parts", make_anyhow, 2, {1, 2, 5, 9}, NULL, workspace_of_parts, launch_parts},
    {"rms_norm", "rms kept", make_normed_rows, 1, {1, 2, 5, 9}, NULL, NULL, layer_norm_kept},
    {"rms_norm",
     "rms pieces",
     make_anyhow,
     1,
     {1, 2, 5, 9},
     NULL,
     layer_norm_pieces_workspace,
     layer_norm_pieces},
    {"rms_norm", "rms in parts", make_anyhow, 2, {1, 2, 5, 9}, NULL, workspace_of_parts, launch_parts},
    {"reduce", "rows", make_reduced_rows, 1, {1, 2, 5, 9}, NULL, workspace_rows, reduce_rows},
    {"reduce", "rows, largest", make_largest_rows, 1, {1, 2, 5, 9}, NULL, workspace_rows, reduce_rows},
    {"reduce",
     "strided, largest",
     make_largest_columns,
     1,
     {1, 2, 5, 9},
     NULL,
     workspace_strided,
     reduce_strided},
    {"reduce", "strided in parts", make_anyhow, 1, {1, 2, 5, 9}, NULL, workspace_of_parts, launch_parts},
    {"softmax", "fused", make_short_rows, 1, {1, 1, 1, 1}, NULL, softmax_fused_workspace, softmax_fused},
    {"softmax", "fused together", make_alike_rows, 1, {1, 1, 1, 1}, are_alike, NULL, softmax_fused_at_once},
    {"softmax", "fused elsewhere", make_alike_rows, 1, {1, 1, 1, 1}, are_alike, NULL, softmax_fused_elsewhere},
    {"copy", "vector together", make_alike_rows, 1, {1, 1, 1, 1}, are_alike, NULL, copy_vector_at_once},
    {"copy", "vector elsewhere", make_alike_rows, 1, {1, 1, 1, 1}, are_alike, NULL, copy_vector_elsewhere},
    {"gather", "gather rows", make_table, 1, {1, 1, 1, 1}, NULL, NULL, gather_rows_wide},
    {"gather", "gather elements", make_anyhow, 1, {1, 1, 1, 1}, NULL, NULL, gather_elements},
    {"gather",
     "gather rows together",
     make_aligned_table,
     1,
     {1, 1, 1, 1},
     are_alike,
     NULL,
     gather_rows_wide_at_once},
    {"gather",
     "gather elements together",
     make_aligned_table,
     1,
     {1, 1, 1, 1},
     are_alike,
     NULL,
     gather_elements_at_once},
    {"gather",
     "gather rows elsewhere",
     make_aligned_table,
     1,
     {1, 1, 1, 1},
     are_alike,
     NULL,
     gather_rows_wide_elsewhere},
    {"gather",
     "gather elements elsewhere",
     make_aligned_table,
     1,
     {1, 1, 1, 1},
     are_alike,
     NULL,
     gather_elements_elsewhere},
    {"add", "float4x", make_runs, 1, {1, 1, 1, 1}, NULL, NULL, add_float4x},
    {"add", "scalar", make_anyhow, 1, {1, 1, 1, 1}, NULL, NULL, add_scalar},
    {"subtract", "float4", make_runs, 1, {1, 1, 1, 1}, NULL, NULL, subtract_float4},
    {"subtract", "scalar", make_anyhow, 1, {1, 1, 1, 1}, NULL, NULL, subtract_scalar},
    {"unary", "float4x", make_runs, 1, {1, 1, 1, 1}, NULL, NULL, unary_float4x},
    {"unary", "scalar", make_anyhow, 1, {1, 1, 1, 1}, NULL, NULL, unary_scalar},
    {"unary", "unary together", make_alike_rows, 1, {1, 1, 1, 1}, are_alike, NULL, unary_float4x_at_once},
    {"unary", "unary elsewhere", make_alike_rows, 1, {1, 1, 1, 1}, are_alike, NULL, unary_float4x_elsewhere},
    {"softmax",
     "ring",
     make_long_rows,
     4,
     {12, 13, 14, 16},
     softmax_ring_takes,
     softmax_ring_workspace,
     softmax_ring},
    {"softmax",
     "ring around",
     make_many_rows,
     4,
     {2, 3, 4, 2},
     softmax_ring_takes,
     softmax_ring_workspace,
     softmax_ring},
};

#define KERNELS (sizeof kernels / sizeof kernels[0])

/* ---- Runs ---- */

struct settings {
	uint64_t seed;
	unsigned cases;
	int only_case; /* -1: all */
	const char *kernel;
};

/* The results of a kernel's cases. */
struct result {
	unsigned ran, refused, failed;
	double worst;
};

/* Leaves the workspace uninitialized, and checks that what lies behind it stays. */
static int launch_kernel(const struct candidate *kernel, const struct op_args *args, char why[CHECK_TEXT_BYTES])
{
	uint64_t bytes = kernel->workspace ? kernel->workspace(args) : 0;
	uint64_t room =
	    (bytes + GUARD_BYTES + WORKSPACE_ALIGNMENT - 1) / WORKSPACE_ALIGNMENT * WORKSPACE_ALIGNMENT;
	unsigned char *workspace = aligned_alloc(WORKSPACE_ALIGNMENT, room);
	const struct view *x = &args->views[0];
	struct launch launch = {.workspace = workspace,
	                        .workspace_bytes = bytes,
	                        .multiprocessors_left = x->shape[x->rank - 1] % 2}; /* some of the cases */

	snprintf(why, CHECK_TEXT_BYTES, "out of memory");
	if (!workspace)
		return KOPS_E_NOMEM;
	memset(workspace, GUARD, room);
	int rc = kernel->launch(args, &launch);
	snprintf(why, CHECK_TEXT_BYTES, "launch: status %d", rc);
	for (uint64_t i = bytes; rc == 0 && i < room; i++)
		if (workspace[i] != GUARD) {
			snprintf(why, CHECK_TEXT_BYTES, "writes behind its workspace");
			rc = KOPS_E_FAULT;
		}
	free(workspace);
	return rc;
}

static void run_kernel(const struct candidate *kernel, struct problem *p, struct verdict *ret)
{
	struct op_args args = p->args;
	struct oracle oracle = {0};

	*ret = (struct verdict){0};
	if (oracle_make(&oracle, p, ret->why)) {
		for (unsigned i = 0; i < p->n_storage; i++)
			memcpy(p->storage[i].host, p->storage[i].before, p->storage[i].bytes);
		for (unsigned i = 0; i < args.op->n_operands; i++)
			if (!view_is_absent(&args.views[i]))
				args.views[i].data = p->spaces[i]->host + args.views[i].offset;
		if (launch_kernel(kernel, &args, ret->why) == 0)
			judge(&oracle, p, ret);
	}
	oracle_free(&oracle);
}

static void check_case(const struct candidate *kernel, const struct settings *s, unsigned number,
                       struct result *result)
{
	struct random r = {s->seed * 1000003 + number};
	struct problem p = {.args.op = op_by_name(kernel->op)};
	char text[CHECK_TEXT_BYTES], again[CHECK_TEXT_BYTES + 100];
	const char *why_not;
	struct verdict verdict = {.why = "out of memory"};
	bool made = kernel->make(&p, &r);

	problem_describe(&p, text);
	snprintf(again, sizeof again, "%s\n  again: --seed %llu --kernel %s --case %u", text,
	         (unsigned long long)s->seed, kernel->name, number);
	emulated_gpu(kernel->multiprocessors[random_below(&r, 4)], random_next(&r), again);
	if (made && kernel->supports && !kernel->supports(&p.args, &why_not)) {
		result->refused++;
	} else {
		result->ran++;
		if (made)
			run_kernel(kernel, &p, &verdict);
		result->worst = verdict.worst > result->worst ? verdict.worst : result->worst;
		if (!verdict.right && result->failed++ < 3)
			printf("FAILED %s: %s\n  %s\n", kernel->name, verdict.why, again);
	}
	problem_free(&p);
}

/* Returns how many cases failed, plus one if all were refused. */
static unsigned check_kernel(const struct candidate *kernel, const struct settings *s)
{
	struct result result = {0};

	for (unsigned number = 0; number < s->cases; number++)
		if (s->only_case < 0 ? number % kernel->slow == 0 : number == (unsigned)s->only_case)
			check_case(kernel, s, number, &result);
	bool gap = s->only_case < 0 && result.ran == 0;
	printf("%-10s %-12s %6u cases %6u refused %6u failed  worst error / bound %.3f%s\n", kernel->op,
	       kernel->name, result.ran, result.refused, result.failed, result.worst,
	       gap ? "  FAILED: supports none of the problems" : "");
	return result.failed + gap;
}

/* ---- The program ---- */

static int usage(FILE *to)
{
	fputs("usage: check_emulated [options]\n"
	      "  --seed N       of the problems and the order of threads, or random (default: $KOPS_TEST_SEED, "
	      "else 1)\n"
	      "  --cases N      problems per kernel (default 12)\n"
	      "  --case N       this one only\n"
	      "  --kernel NAME  this kernel only\n",
	      to);
	return to == stdout ? 0 : 2;
}

static const struct option long_options[] = {
    {"seed", required_argument, NULL, 's'}, {"cases", required_argument, NULL, 'n'},
    {"case", required_argument, NULL, 'c'}, {"kernel", required_argument, NULL, 'r'},
    {"help", no_argument, NULL, 'h'},       {0},
};

/* Returns true to go on; else *ret_status is the exit status. */
static bool parse(int argc, char **argv, struct settings *s, int *ret_status)
{
	int c;

	while ((c = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
		switch (c) {
		case 's':
			s->seed = seed_parse(optarg);
			break;
		case 'n':
			s->cases = (unsigned)strtoul(optarg, NULL, 0);
			break;
		case 'c':
			s->only_case = atoi(optarg);
			s->cases = (unsigned)s->only_case + 1;
			break;
		case 'r':
			s->kernel = optarg;
			break;
		default:
			*ret_status = usage(c == 'h' ? stdout : stderr);
			return false;
		}
	}
	return true;
}

int main(int argc, char **argv)
{
	struct settings s = {.seed = seed_of_run(), .cases = 12, .only_case = -1};
	unsigned failed = 0, checked = 0;
	int status;

	if (!parse(argc, argv, &s, &status))
		return status;
	printf("seed %llu\n", (unsigned long long)s.seed);
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t i = 0; i < KERNELS; i++)
		if (!s.kernel || strcmp(s.kernel, kernels[i].name) == 0) {
			checked++;
			failed += check_kernel(&kernels[i], &s);
		}
	if (checked == 0) {
		fprintf(stderr, "there is no kernel %s here\n", s.kernel);
		return 2;
	}
	printf(failed ? "%u FAILED\n" : "all right\n", failed);
	return failed ? 1 : 0;
}
