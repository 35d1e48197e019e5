/*
 * Tests the checks of the ops (kernels/<op>/op.c): what they accept, the form in which they leave it, and their
 * sentences.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <math.h>
#include <string.h>

#include <cmocka.h>

#include "gemm/gemm.h"
#include "softmax/operands.h"

static char spaces[OP_OPERANDS_MAX]; /* their addresses stand for buffers */
static char why[WHY_BYTES];

static struct view view3(unsigned space, uint32_t rank, uint64_t n0, uint64_t n1, uint64_t n2)
{
	struct view v = {.space = &spaces[space], .dtype = KOPS_F32, .rank = rank, .shape = {n0, n1, n2}};

	view_make_dense(&v);
	return v;
}

static struct view matrix(unsigned space, uint64_t rows, uint64_t cols)
{
	return view3(space, 2, rows, cols, 0);
}

static struct op_args args_of(const char *op, struct view v0, struct view v1, struct view v2)
{
	struct op_args args = {.op = op_by_name(op), .views = {v0, v1, v2}};

	if (strcmp(op, "gemm") == 0) {
		args.params.gemm.alpha = 1;
		args.views[GEMM_C] = v2;
		args.views[GEMM_BIAS] = (struct view){.rank = 0};
	} else {
		args.params.softmax.scale = 1;
	}
	if (strcmp(op, "softmax") == 0) {
		args.views[SOFTMAX_MASK] = (struct view){.rank = 0};
		args.views[SOFTMAX_Y] = v1;
	}
	return args;
}

static int check(struct op_args *args)
{
	why[0] = 0;
	return op_check(args, why);
}

static void refused(struct op_args args, int code, const char *sentence)
{
	assert_int_equal(check(&args), code);
	assert_string_equal(why, sentence);
}

static void accepted(struct op_args args)
{
	int rc = check(&args);

	if (rc < 0)
		fail_msg("refused: %d %s", rc, why);
	assert_int_equal(check(&args), 0); /* a checked op passes again */
}

static void gemm_shapes_must_fit(void **state)
{
	(void)state;
	refused(args_of("gemm", matrix(0, 3, 4), matrix(1, 5, 6), matrix(2, 3, 6)), KOPS_E_SHAPE,
	        "a is 3x4, b is 5x6: a's columns (4) must equal b's rows (5)");
	refused(args_of("gemm", matrix(0, 3, 4), matrix(1, 4, 6), matrix(2, 3, 5)), KOPS_E_SHAPE,
	        "a is 3x4, b is 4x6, c is 3x5: c must be 3x6");
	refused(args_of("gemm", view3(0, 3, 2, 3, 4), matrix(1, 4, 6), view3(2, 3, 5, 3, 6)), KOPS_E_SHAPE,
	        "a is 2x3x4, b is 4x6, c is 5x3x6: a and b need c's batch (5) or 1");
	refused(args_of("gemm", view3(0, 1, 3, 0, 0), matrix(1, 4, 6), matrix(2, 3, 6)), KOPS_E_SHAPE,
	        "a has rank 1; this op takes rank 2 to 3");
	accepted(args_of("gemm", matrix(0, 3, 0), matrix(1, 0, 6), matrix(2, 3, 6)));
	accepted(args_of("gemm", matrix(0, 0, 4), matrix(1, 4, 6), matrix(2, 0, 6)));
	accepted(args_of("gemm", view3(0, 3, 5, 3, 4), view3(1, 3, 1, 4, 6), view3(2, 3, 5, 3, 6)));
}

/* No kernel reads them, and products with them might overflow. */
static void strides_of_empty_views_become_0(void **state)
{
	struct op_args args = args_of("gemm", matrix(0, 3, 0), matrix(1, 0, 6), matrix(2, 3, 6));

	(void)state;
	args.views[0].strides[0] = INT64_MIN;
	args.views[1].strides[1] = INT64_MAX;
	assert_int_equal(check(&args), 0);
	assert_int_equal(args.views[0].strides[1], 0);
	assert_int_equal(args.views[1].strides[2], 0);
	assert_int_equal(args.views[GEMM_C].strides[1], 6);
}

static void gemm_types_and_scalars_must_fit(void **state)
{
	struct op_args args = args_of("gemm", matrix(0, 3, 4), matrix(1, 4, 6), matrix(2, 3, 6));

	(void)state;
	args.views[1].dtype = KOPS_F64;
	refused(args, KOPS_E_DTYPE, "a is f32, b is f64: gemm wants one type for both");
	args.views[1].dtype = KOPS_F32;
	args.params.gemm.alpha = 1e300;
	refused(args, KOPS_E_INVALID, "alpha is 1e+300, beyond the range of f32; scale the data instead");
	args.params.gemm.alpha = 0.1;
	assert_int_equal(check(&args), 0);
	assert_true(args.params.gemm.alpha == (double)0.1f);
	args.params.gemm.precision = (kops_precision)7;
	refused(args, KOPS_E_INVALID, "precision is 7; it is f32 (0), ieee (1), tf32 (2) or bf16 (3)");
}

static void gemm_output_stays_clear_of_inputs(void **state)
{
	struct op_args args = args_of("gemm", matrix(0, 4, 4), matrix(1, 4, 4), matrix(0, 4, 4));

	(void)state;
	refused(args, KOPS_E_OVERLAP, "output c overlaps input a; write to other memory");
	args.views[GEMM_C].offset = 64;
	accepted(args);
	args.views[GEMM_C].strides[0] = 0;
	refused(
	    args, KOPS_E_OVERLAP,
	    "the strides of output c (4x4) place several elements at one address; use strides that keep them "
	    "apart");
}

static void gemm_operands_get_one_form(void **state)
{
	struct op_args args = args_of("gemm", view3(0, 3, 1, 7, 1), matrix(1, 1, 6), view3(2, 3, 5, 7, 6));

	(void)state;
	args.views[0].strides[2] = 33;
	assert_int_equal(check(&args), 0);
	for (unsigned i = 0; i < 4; i++) {
		if (i == GEMM_BIAS)
			continue;
		assert_int_equal(args.views[i].rank, 3);
		assert_int_equal(args.views[i].shape[0], 5);
	}
	assert_int_equal(args.views[0].strides[0], 0);
	assert_int_equal(args.views[0].strides[2], 1);
	assert_int_equal(args.views[1].strides[0], 0);
	assert_int_equal(args.views[1].strides[1], 6);
	assert_int_equal(args.views[GEMM_C].strides[0], 42);
}

static void gemm_repeats_its_bias_to_c(void **state)
{
	struct op_args args = args_of("gemm", view3(0, 3, 5, 7, 4), matrix(1, 4, 6), view3(2, 3, 5, 7, 6));

	(void)state;
	args.views[GEMM_BIAS] = view3(3, 1, 6, 0, 0);
	assert_int_equal(check(&args), 0);
	assert_int_equal(args.views[GEMM_BIAS].rank, 3);
	assert_memory_equal(args.views[GEMM_BIAS].shape, args.views[GEMM_C].shape, 3 * sizeof(uint64_t));
	assert_int_equal(args.views[GEMM_BIAS].strides[0], 0);
	assert_int_equal(args.views[GEMM_BIAS].strides[1], 0);
	assert_int_equal(args.views[GEMM_BIAS].strides[2], 1);
	args.views[GEMM_BIAS] = matrix(3, 7, 1);
	assert_int_equal(check(&args), 0);
	assert_int_equal(args.views[GEMM_BIAS].strides[1], 1);
	assert_int_equal(args.views[GEMM_BIAS].strides[2], 0);
	args.views[GEMM_BIAS] = matrix(3, 7, 5);
	refused(
	    args, KOPS_E_SHAPE,
	    "bias is 7x5, which does not repeat to c's 5x7x6: each extent, from the last, must be equal or 1");
	args.views[GEMM_BIAS] = view3(2, 1, 6, 0, 0);
	refused(args, KOPS_E_OVERLAP, "output c overlaps input bias; write to other memory");
	args.views[GEMM_BIAS] = view3(3, 1, 6, 0, 0);
	args.views[GEMM_BIAS].dtype = KOPS_F64;
	refused(args, KOPS_E_DTYPE, "a is f32, bias is f64: gemm wants one type for both");
	args.views[GEMM_BIAS].dtype = KOPS_F32;
	args.params.gemm.activation = (enum unary_function)GEMM_ACTIVATIONS;
	refused(args, KOPS_E_INVALID,
	        "activation is 5; it is none (0), relu (1), gelu (2), gelu_tanh (3) or silu (4)");
}

static void softmax_works_in_place_or_apart(void **state)
{
	struct op_args args = args_of("softmax", matrix(0, 4, 8), matrix(0, 4, 8), matrix(2, 0, 0));

	(void)state;
	accepted(args);
	assert_true(op_reads_output(&args, SOFTMAX_Y));
	args.views[SOFTMAX_Y].offset = 4;
	refused(args, KOPS_E_OVERLAP,
	        "output y overlaps input x without being the same view; write to other memory");
	args.views[SOFTMAX_Y].offset = 4 * 8 * 4;
	accepted(args);
	assert_false(op_reads_output(&args, SOFTMAX_Y));
	args.views[SOFTMAX_Y].shape[1] = 7;
	refused(args, KOPS_E_SHAPE, "x is 4x8, y is 4x7: the shapes must be equal");
	args.views[SOFTMAX_Y].shape[1] = 8;
	args.params.softmax.scale = (double)INFINITY;
	refused(args, KOPS_E_INVALID, "scale is inf; it must be a finite f32 number");
	args.params.softmax.scale = 1;
}

static void softmax_repeats_its_mask_to_x(void **state)
{
	struct op_args args = args_of("softmax", view3(0, 3, 5, 7, 9), view3(1, 3, 5, 7, 9), matrix(2, 0, 0));
	struct view *mask = &args.views[SOFTMAX_MASK];

	(void)state;
	*mask = matrix(2, 7, 9);
	assert_int_equal(check(&args), 0);
	assert_true(mask->rank == 4 && mask->shape[1] == 5 && mask->strides[1] == 0 && mask->strides[2] == 9);
	args = args_of("softmax", view3(0, 3, 5, 7, 9), view3(1, 3, 5, 7, 9), matrix(2, 0, 0));
	*mask = view3(2, 3, 5, 1, 9);
	assert_int_equal(check(&args), 0);
	assert_true(mask->strides[1] == 9 && mask->strides[2] == 0 && mask->strides[3] == 1);
	args = args_of("softmax", view3(0, 3, 5, 7, 9), view3(1, 3, 5, 7, 9), matrix(2, 0, 0));
	*mask = matrix(2, 5, 9);
	refused(
	    args, KOPS_E_SHAPE,
	    "mask is 5x9, which does not repeat to x's 5x7x9: each extent, from the last, must be equal or 1");
	assert_int_equal(op_result(&args, why), KOPS_E_SHAPE);
	args.views[SOFTMAX_X] = args.views[SOFTMAX_Y] = matrix(0, 5, 9);
	*mask = view3(2, 3, 2, 5, 9);
	refused(
	    args, KOPS_E_SHAPE,
	    "mask is 2x5x9, which does not repeat to x's 5x9: each extent, from the last, must be equal or 1");
	*mask = matrix(0, 5, 9);
	refused(args, KOPS_E_OVERLAP, "output y overlaps input mask; write to other memory");
}

static struct op_args with_dtype(struct op_args args, kops_dtype dtype)
{
	for (unsigned i = 0; i < args.op->n_operands; i++)
		if (!view_is_absent(&args.views[i]))
			args.views[i].dtype = dtype;
	return args;
}

/* All views have one type, which the op must take. */
static void each_op_has_its_types(void **state)
{
	struct op_args softmax = args_of("softmax", matrix(0, 4, 8), matrix(1, 4, 8), matrix(2, 0, 0));
	struct op_args transpose = args_of("transpose", matrix(0, 4, 8), matrix(1, 8, 4), matrix(2, 0, 0));
	struct op_args add = args_of("add", matrix(0, 4, 8), matrix(1, 4, 8), matrix(2, 4, 8));

	(void)state;
	for (kops_dtype dtype = DTYPE_FIRST; dtype < DTYPE_END; dtype++) {
		accepted(with_dtype(transpose, dtype));
		if (dtype_kind(dtype) != DTYPE_REAL)
			continue;
		accepted(with_dtype(softmax, dtype));
		accepted(with_dtype(add, dtype));
	}
	refused(with_dtype(softmax, KOPS_C64), KOPS_E_DTYPE, "x is c64; softmax takes f32, f64, f16 and bf16");
	refused(with_dtype(add, KOPS_I32), KOPS_E_DTYPE,
	        "a is i32; add takes f32, f64, f16, bf16, c64 and c128");
	refused(with_dtype(transpose, (kops_dtype)9), KOPS_E_DTYPE,
	        "x is no dtype; transpose takes f32, f64, f16, bf16, i32, c64 and c128");
	refused(with_dtype(transpose, (kops_dtype)64), KOPS_E_DTYPE,
	        "x is no dtype; transpose takes f32, f64, f16, bf16, i32, c64 and c128");
	add.views[2].dtype = KOPS_BF16;
	refused(add, KOPS_E_DTYPE, "a is f32, y is bf16: add wants one type for both");
	add.views[1].dtype = KOPS_F16;
	refused(add, KOPS_E_DTYPE, "a is f32, b is f16: add wants one type for both");
	softmax.views[SOFTMAX_Y].dtype = KOPS_F16;
	refused(softmax, KOPS_E_DTYPE, "x is f32, y is f16: softmax wants one type for both");
	transpose.views[0].dtype = KOPS_F64;
	refused(transpose, KOPS_E_DTYPE, "x is f64, y is f32: transpose wants one type for both");
}

static void softmax_rows_are_folded(void **state)
{
	struct op_args args = args_of("softmax", view3(0, 3, 5, 7, 9), view3(1, 3, 5, 7, 9), matrix(2, 0, 0));

	(void)state;
	assert_int_equal(check(&args), 0);
	const uint64_t want[4] = {1, 1, 35, 9};
	assert_memory_equal(args.views[0].shape, want, sizeof want);
	assert_int_equal(args.views[SOFTMAX_Y].strides[2], 9);
}

static void transpose_exchanges_the_last_two(void **state)
{
	(void)state;
	accepted(args_of("transpose", view3(0, 3, 2, 3, 4), view3(1, 3, 2, 4, 3), matrix(2, 0, 0)));
	refused(args_of("transpose", view3(0, 3, 2, 3, 4), view3(1, 3, 2, 3, 4), matrix(2, 0, 0)), KOPS_E_SHAPE,
	        "x is 2x3x4, y is 2x3x4: y must be x with its last two extents exchanged");
	refused(args_of("transpose", matrix(0, 4, 4), matrix(0, 4, 4), matrix(2, 0, 0)), KOPS_E_OVERLAP,
	        "output y overlaps input x; write to other memory");
}

/* Sums are those of the parts, which are one more axis where they are none of a run. */
static void complex_numbers_are_two_reals(void **state)
{
	struct op_args dense =
	    with_dtype(args_of("add", matrix(0, 4, 6), view3(1, 1, 6, 0, 0), matrix(2, 4, 6)), KOPS_C64);
	struct op_args rows =
	    with_dtype(args_of("reduce", view3(0, 3, 3, 5, 7), matrix(1, 3, 5), matrix(2, 0, 0)), KOPS_C128);
	struct op_args empty =
	    with_dtype(args_of("add", matrix(0, 0, 6), matrix(1, 0, 6), matrix(2, 0, 6)), KOPS_C64);

	(void)state;
	assert_int_equal(check(&dense), 0);
	assert_int_equal(dense.views[2].dtype, KOPS_F32);
	const uint64_t of_sum[4] = {1, 1, 4, 12}, of_rows[4] = {1, 15, 2, 7};
	assert_memory_equal(dense.views[2].shape, of_sum, sizeof of_sum);
	assert_int_equal(dense.views[1].strides[2], 0);
	assert_int_equal(dense.views[0].strides[2], 12);
	assert_int_equal(check(&dense), 0);
	assert_int_equal(check(&rows), 0);
	assert_memory_equal(rows.views[0].shape, of_rows, sizeof of_rows);
	assert_int_equal(rows.views[0].strides[3], 2);
	assert_int_equal(rows.views[1].strides[1], 2);
	assert_int_equal(check(&empty), 0);
	rows = with_dtype(args_of("reduce", matrix(0, 3, 5), view3(1, 1, 3, 0, 0), matrix(2, 0, 0)), KOPS_C64);
	rows.params.reduce.kind = KOPS_PROD;
	refused(rows, KOPS_E_INVALID, "x is c64: complex numbers have a sum and a mean, but no prod here");
}

/* Their parts are the fourth axis. */
static void complex_numbers_have_three_axes(void **state)
{
	struct op_args args = args_of("add", matrix(0, 1, 1), matrix(1, 1, 1), matrix(2, 1, 1));

	(void)state;
	for (unsigned i = 0; i < 3; i++)
		args.views[i] = (struct view){.space = &spaces[i],
		                              .dtype = KOPS_C64,
		                              .rank = 3,
		                              .shape = {2, 2, 2},
		                              .strides = {27, 9, 3}};
	accepted(args);
	for (unsigned i = 0; i < 3; i++)
		args.views[i].rank = 4;
	refused(args, KOPS_E_SHAPE, "a has rank 4; this op takes rank 1 to 3");
	args = with_dtype(args_of("reduce", view3(0, 1, 1, 0, 0), view3(1, 1, 1, 0, 0), matrix(2, 0, 0)),
	                  KOPS_C64);
	args.views[0].shape[0] = (uint64_t)INT64_MAX / 2 + 1;
	args.views[0].strides[0] = 0;
	refused(args, KOPS_E_SHAPE, "complex operands may have up to 2^62 elements");
}

static void add_repeats_rows_columns_and_scalars(void **state)
{
	struct op_args args = args_of("add", matrix(0, 4, 6), view3(1, 1, 6, 0, 0), matrix(2, 4, 6));

	(void)state;
	assert_int_equal(check(&args), 0);
	assert_int_equal(args.views[1].strides[2], 0);
	assert_int_equal(args.views[1].strides[3], 1);
	accepted(args_of("add", matrix(0, 4, 1), view3(1, 1, 1, 0, 0), matrix(2, 4, 6)));
	refused(args_of("add", matrix(0, 4, 6), matrix(1, 3, 6), matrix(2, 4, 6)), KOPS_E_SHAPE,
	        "b is 3x6, which does not repeat to y's 4x6: each extent, from the last, must be equal or 1");
	accepted(args_of("add", matrix(2, 4, 6), matrix(1, 1, 6), matrix(2, 4, 6)));
	refused(args_of("add", matrix(0, 4, 6), matrix(2, 1, 6), matrix(2, 4, 6)), KOPS_E_OVERLAP,
	        "output y overlaps input b without being the same view; write to other memory");
}

static void add_of_dense_operands_is_one_axis(void **state)
{
	struct op_args args = args_of("add", view3(0, 3, 3, 4, 5), view3(1, 3, 3, 4, 5), view3(2, 3, 3, 4, 5));

	(void)state;
	for (unsigned i = 0; i < 3; i++) { /* all seen with axes 0 and 2 exchanged */
		args.views[i].shape[0] = 5;
		args.views[i].shape[2] = 3;
		args.views[i].strides[0] = 1;
		args.views[i].strides[2] = 20;
	}
	assert_int_equal(check(&args), 0);
	assert_int_equal(args.views[2].shape[3], 60);
	assert_int_equal(args.views[0].strides[3], 1);
}

static void copy_does_not_convert(void **state)
{
	struct op_args args = args_of("copy", matrix(0, 4, 6), matrix(1, 4, 6), matrix(2, 0, 0));

	(void)state;
	accepted(args);
	args.views[1].dtype = KOPS_F16;
	refused(args, KOPS_E_DTYPE, "x is f32, y is f16: copy wants one type for both");
}

static void costs_count_what_is_there(void **state)
{
	struct op_args args = args_of("gemm", view3(0, 3, 1, 7, 3), view3(1, 3, 5, 3, 6), view3(2, 3, 5, 7, 6));
	struct cost cost;

	(void)state;
	assert_int_equal(check(&args), 0);
	args.op->cost(&args, &cost);
	assert_true(cost.flops == 2.0 * 5 * 7 * 6 * 3);
	assert_true(cost.bytes == 4.0 * (7 * 3 + 5 * 3 * 6 + 5 * 7 * 6));
	args.params.gemm.beta = 1;
	args.op->cost(&args, &cost);
	assert_true(cost.bytes == 4.0 * (7 * 3 + 5 * 3 * 6 + 2 * 5 * 7 * 6));
}

static void sample_passes_its_own_check(const struct op *op, kops_dtype dtype,
                                        bool (*sample)(kops_dtype, struct op_args *))
{
	struct op_args args = {.op = op};

	if (!sample(dtype, &args)) {
		assert_int_not_equal(dtype, KOPS_F32);
		return;
	}
	assert_ptr_equal(args.op, op);
	for (unsigned j = 0; j < op->n_operands; j++)
		args.views[j].space = &spaces[j];
	assert_int_equal(check(&args), 0);
	assert_true(view_elements(&args.views[0]) > 1000);
	assert_true(op->tolerance(&args) < 2);
}

static void samples_pass_their_own_check(void **state)
{
	(void)state;
	for (size_t i = 0; i < OP_COUNT; i++)
		for (kops_dtype dtype = DTYPE_FIRST; dtype < DTYPE_END; dtype++) {
			sample_passes_its_own_check(ops[i], dtype, ops[i]->sample);
			if (ops[i]->large_sample)
				sample_passes_its_own_check(ops[i], dtype, ops[i]->large_sample);
		}
}

/* Tests which ops one launch may compute, and one plan serves. */
static void ops_are_alike_that_differ_in_places_only(void **state)
{
	(void)state;
	struct op_args a = args_of("gemm", matrix(0, 8, 9), matrix(1, 9, 7), matrix(2, 8, 7)), b = a;

	b.views[0].space = &spaces[3];
	b.views[1].offset = 4096 + 16;
	b.views[GEMM_C].data = (void *)32;
	assert_true(op_args_alike(&a, &b));
	b.views[1].offset = 4;
	assert_false(op_args_alike(&a, &b));
	b = a;
	b.views[0].data = (void *)8;
	assert_false(op_args_alike(&a, &b));
	b = a;
	b.views[0].strides[0] = 16;
	assert_false(op_args_alike(&a, &b));
	b = a;
	b.views[GEMM_C].shape[1] = 6;
	assert_false(op_args_alike(&a, &b));
	b = a;
	b.views[0].dtype = KOPS_F16;
	assert_false(op_args_alike(&a, &b));
	b = a;
	b.params.gemm.alpha = 2;
	assert_false(op_args_alike(&a, &b));
	b = args_of("add", matrix(0, 8, 9), matrix(1, 9, 7), matrix(2, 8, 7));
	assert_false(op_args_alike(&a, &b));
}

/* ---- The size of an op, as people say it ---- */

static void size_is(struct op_args args, kops_dtype dtype, uint32_t rank, const uint64_t *extents)
{
	struct op_shape shape;

	op_shape_of(&args, &shape);
	assert_int_equal(shape.dtype, dtype);
	assert_int_equal(shape.rank, rank);
	for (uint32_t i = 0; i < rank; i++)
		assert_int_equal(shape.extents[i], extents[i]);
}

#define SIZE_IS(args, dtype, ...)                                                                              \
	size_is(args, dtype, sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), (uint64_t[]){__VA_ARGS__})

static void sizes_are_what_was_sent(void **state)
{
	struct view none = {.rank = 0}, f64 = matrix(0, 5, 7);
	(void)state;

	SIZE_IS(args_of("gemm", matrix(0, 3, 4), matrix(1, 4, 5), matrix(2, 3, 5)), KOPS_F32, 3, 5, 4);
	SIZE_IS(args_of("gemm", matrix(0, 3, 4), view3(1, 3, 8, 4, 5), view3(2, 3, 8, 3, 5)), KOPS_F32, 8, 3, 5,
	        4);
	SIZE_IS(args_of("gemm", matrix(0, 3, 0), matrix(1, 0, 5), matrix(2, 3, 5)), KOPS_F32, 3, 5, 0);
	SIZE_IS(args_of("add", matrix(0, 1, 9), view3(1, 1, 1, 0, 0), matrix(2, 6, 9)), KOPS_F32, 6, 9);
	SIZE_IS(args_of("transpose", matrix(0, 6, 9), matrix(1, 9, 6), none), KOPS_F32, 6, 9);
	SIZE_IS(args_of("reduce", matrix(0, 6, 9), view3(1, 1, 6, 0, 0), none), KOPS_F32, 6, 9);
	SIZE_IS(args_of("softmax", matrix(0, 6, 9), matrix(1, 6, 9), none), KOPS_F32, 6, 9);
	f64.dtype = KOPS_F64;
	SIZE_IS(args_of("copy", f64, f64, none), KOPS_F64, 5, 7); /* check() makes it one axis */
}

/* Asks with ranks that check() refuses, since sizes are asked before. */
static void sizes_of_wrong_ranks(void **state)
{
	struct view line = view3(0, 1, 4, 0, 0);
	struct op_shape shape;
	struct op_args args = args_of("gemm", line, line, line);
	(void)state;

	op_shape_of(&args, &shape);
	assert_int_equal(shape.rank, 0);
	args = args_of("gemm", matrix(0, 2, 2), line, line);
	op_shape_of(&args, &shape);
	assert_int_equal(shape.rank, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(gemm_shapes_must_fit),
	    cmocka_unit_test(strides_of_empty_views_become_0),
	    cmocka_unit_test(gemm_types_and_scalars_must_fit),
	    cmocka_unit_test(gemm_output_stays_clear_of_inputs),
	    cmocka_unit_test(gemm_operands_get_one_form),
	    cmocka_unit_test(gemm_repeats_its_bias_to_c),
	    cmocka_unit_test(softmax_works_in_place_or_apart),
	    cmocka_unit_test(softmax_repeats_its_mask_to_x),
	    cmocka_unit_test(each_op_has_its_types),
	    cmocka_unit_test(softmax_rows_are_folded),
	    cmocka_unit_test(transpose_exchanges_the_last_two),
	    cmocka_unit_test(complex_numbers_are_two_reals),
	    cmocka_unit_test(complex_numbers_have_three_axes),
	    cmocka_unit_test(add_repeats_rows_columns_and_scalars),
	    cmocka_unit_test(add_of_dense_operands_is_one_axis),
	    cmocka_unit_test(copy_does_not_convert),
	    cmocka_unit_test(costs_count_what_is_there),
	    cmocka_unit_test(samples_pass_their_own_check),
	    cmocka_unit_test(ops_are_alike_that_differ_in_places_only),
	    cmocka_unit_test(sizes_are_what_was_sent),
	    cmocka_unit_test(sizes_of_wrong_ranks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
