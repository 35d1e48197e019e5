/* Cutting ops: the parts together are the whole, whatever the shape, and a cut is as fine as was asked for. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/half.h"
#include "common/rules.h"
#include "seed.h"

#define ELEMENTS (1u << 15) /* of each of the three pieces of memory */

static uint64_t random_state;

static uint64_t pick(uint64_t n)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (random_state >> 33) % n;
}

struct memories {
	double start[OP_VIEWS_MAX][ELEMENTS], work[OP_VIEWS_MAX][ELEMENTS];
};

/* Of f64, dense or with the axes in another order, in the midst of its memory. */
static struct view random_view(const uint64_t *shape, uint32_t rank, unsigned memory)
{
	struct view v = {
	    .dtype = KOPS_F64, .rank = rank, .space = (void *)(uintptr_t)(memory + 1), .offset = 64};

	memcpy(v.shape, shape, rank * sizeof shape[0]);
	view_make_dense(&v);
	if (rank >= 2 && pick(3) == 0) { /* as the transpose of what lies there */
		v.strides[rank - 1] = (int64_t)v.shape[rank - 2];
		v.strides[rank - 2] = 1;
	}
	return v;
}

static void random_shape(uint64_t *shape, uint32_t rank)
{
	for (uint32_t d = 0; d < rank; d++)
		shape[d] = pick(6) == 0 ? 1 : 1 + pick(rank > 2 ? 9 : 60);
}

static void make_gemm(struct op_args *args)
{
	uint64_t batch = 1 + pick(3), m = 1 + pick(30), n = 1 + pick(30), k = 1 + pick(90);

	args->views[0] = random_view((uint64_t[]){pick(2) ? batch : 1, m, k}, 3, 0);
	args->views[1] = random_view((uint64_t[]){pick(2) ? batch : 1, k, n}, 3, 1);
	args->views[2] = random_view((uint64_t[]){batch, m, n}, 3, 2);
	args->params.gemm = (struct gemm_params){.alpha = 0.5, .beta = pick(2) ? 0.25 : 0};
}

static void make_alike(struct op_args *args)
{
	uint64_t shape[4];
	uint32_t rank = 1 + (uint32_t)pick(4);

	random_shape(shape, rank);
	for (unsigned i = 0; i <= args->op->n_inputs; i++)
		args->views[i] = random_view(shape, rank, i);
	if (args->op == &op_softmax)
		args->params.softmax.scale = 0.5;
	if (args->op == &op_fma)
		args->params.fma =
		    (struct fma_params){.alpha = 0.875, .beta = 0.125, .steps = (uint32_t)pick(50)};
}

static void make_transpose(struct op_args *args)
{
	uint64_t shape[4], turned[4];
	uint32_t rank = 2 + (uint32_t)pick(3);

	random_shape(shape, rank);
	memcpy(turned, shape, sizeof shape);
	turned[rank - 1] = shape[rank - 2];
	turned[rank - 2] = shape[rank - 1];
	args->views[0] = random_view(shape, rank, 0);
	args->views[1] = random_view(turned, rank, 1);
}

static void make_reduce(struct op_args *args)
{
	uint64_t shape[4];
	uint32_t rank = 1 + (uint32_t)pick(4);

	random_shape(shape, rank);
	args->views[0] = random_view(shape, rank, 0);
	shape[rank - 1] = 1;
	args->views[1] = random_view(shape, rank, 1);
	args->params.reduce.kind = (kops_reduction)pick(3);
}

/* add, softmax and reduce take no f64: their elements are f32 in the same memory. */
static void make(const struct op *op, struct op_args *args)
{
	char why[WHY_BYTES];

	*args = (struct op_args){.op = op};
	if (op == &op_gemm)
		make_gemm(args);
	else if (op == &op_transpose)
		make_transpose(args);
	else if (op == &op_reduce)
		make_reduce(args);
	else
		make_alike(args);
	for (unsigned i = 0; i <= op->n_inputs; i++)
		if (op == &op_add || op == &op_softmax || op == &op_reduce)
			args->views[i].dtype = KOPS_F32;
	if (op->check(args, why) < 0)
		fail_msg("%s: %s", op->name, why);
}

static void fill(struct memories *m, kops_dtype dtype)
{
	for (unsigned i = 0; i < OP_VIEWS_MAX; i++)
		for (unsigned e = 0; e < ELEMENTS; e++) {
			double v = (double)pick(2000) / 1000 - 1;
			if (dtype == KOPS_F64)
				m->start[i][e] = v;
			else
				((float *)m->start[i])[e] = (float)v;
		}
}

static void point(struct op_args *args, struct memories *m)
{
	memcpy(m->work, m->start, sizeof m->work);
	for (unsigned i = 0; i <= args->op->n_inputs; i++) {
		unsigned memory = (unsigned)(uintptr_t)args->views[i].space - 1;
		args->views[i].data = (char *)m->work[memory] + args->views[i].offset;
	}
}

static double at(const struct memories *m, unsigned memory, unsigned element, kops_dtype dtype)
{
	return dtype == KOPS_F64 ? m->work[memory][element] : (double)((const float *)m->work[memory])[element];
}

static void compare(const struct op_args *args, const struct memories *whole, const struct memories *parts,
                    double tolerance)
{
	kops_dtype dtype = args->views[0].dtype;

	for (unsigned i = 0; i < OP_VIEWS_MAX; i++)
		for (unsigned e = 0; e < ELEMENTS; e++)
			if (!(fabs(at(whole, i, e, dtype) - at(parts, i, e, dtype)) <= tolerance))
				fail_msg("%s: element %u of memory %u is %g in parts, %g as a whole",
				         args->op->name, e, i, at(parts, i, e, dtype), at(whole, i, e, dtype));
}

static void test_the_parts_are_the_whole(void **state)
{
	static struct memories whole, parts;

	(void)state;
	random_state = seed_of_run();
	for (int round = 0; round < 600; round++) {
		struct op_args args, part;
		struct op_cut cut;

		make(ops[round % OP_COUNT], &args);
		fill(&whole, args.views[0].dtype);
		memcpy(parts.start, whole.start, sizeof whole.start);
		op_cut(&args, (double)(1 + pick(40)), &cut);
		point(&args, &whole);
		args.op->reference(&args);
		point(&args, &parts);
		for (uint32_t i = 0; i < cut.n_parts; i++) {
			op_part(&args, &cut, i, &part);
			for (unsigned v = 0; v <= args.op->n_inputs; v++)
				if (part.views[v].space == args.views[v].space)
					assert_int_equal((char *)part.views[v].data -
					                     (char *)args.views[v].data,
					                 part.views[v].offset - args.views[v].offset);
			part.op->reference(&part);
		}
		/* Along K sums are rounded once more for each part, those of reduce to f32. */
		compare(&args, &whole, &parts, args.op == &op_gemm ? 1e-13 : args.op == &op_reduce ? 1e-5 : 0);
	}
}

static struct op_args dense(const struct op *op, uint64_t rows, uint64_t cols)
{
	struct op_args args = {.op = op};
	char why[WHY_BYTES];

	for (unsigned i = 0; i <= op->n_inputs; i++)
		args.views[i] = random_view((uint64_t[]){rows, cols}, 2, i), view_make_dense(&args.views[i]);
	args.params.fma.steps = 1u << 31;
	assert_int_equal(op->check(&args, why), 0);
	return args;
}

static void test_how_finely(void **state)
{
	struct op_args args = dense(&op_copy, 4096, 4096), one = dense(&op_fma, 1, 1),
	               empty = dense(&op_copy, 0, 7);
	struct op_cut cut;

	(void)state;
	op_cut(&args, 1, &cut);
	assert_int_equal(cut.n_parts, 1);
	op_cut(&args, 0.01, &cut);
	assert_int_equal(cut.n_parts, 1);
	op_cut(&args, (double)NAN, &cut);
	assert_int_equal(cut.n_parts, 1);
	op_cut(&args, 1.5, &cut);
	assert_int_equal(cut.n_parts, 2);
	assert_int_equal(cut.chunk, 4096 * 4096 / 2);
	op_cut(&args, 10, &cut);
	assert_true(cut.n_parts >= 10 && cut.n_parts <= 11);
	assert_int_equal(cut.chunk % 256, 0);
	op_cut(&empty, 1e9, &cut);
	assert_int_equal(cut.n_parts, 1);
	/* The steps of a single element follow each other. */
	op_cut(&one, 360, &cut);
	assert_int_equal(cut.axis, CUT_STEPS);
	assert_true(cut.n_parts >= 360 && cut.n_parts <= 361);
	op_cut(&one, 1e300, &cut);
	assert_true(cut.n_parts > 1 && cut.n_parts <= 1u << 21);
}

static bool takes_all(const struct op_args *args, const char **ret_why_not)
{
	(void)args;
	(void)ret_why_not;
	return true;
}

static const struct kernel wide_kernel = {.supports = takes_all, .wide_output = true},
                           narrow_kernel = {.supports = takes_all};

#define ONES 3000u /* f16 has no 2049: added one by one they would make 2048 */

/* The sum of ONES ones, by a product or a reduction. */
static struct op_args sum_of_ones(const struct op *op)
{
	static _Alignas(16) uint16_t ones[ONES], y;
	struct op_args args = {.op = op};
	char why[WHY_BYTES];

	for (unsigned i = 0; i < ONES; i++)
		half_store(ones, KOPS_F16, i, 1);
	for (unsigned v = 0; v <= op->n_inputs; v++)
		args.views[v] = (struct view){.dtype = KOPS_F16, .rank = 2, .shape = {1, 1}, .data = ones};
	args.views[0].shape[1] = ONES;
	op_output(&args)->data = &y;
	op_output(&args)->space = &y;
	if (op == &op_gemm)
		args.views[1].shape[0] = ONES;
	args.params.gemm.alpha = op == &op_gemm;
	for (unsigned v = 0; v <= op->n_inputs; v++)
		view_make_dense(&args.views[v]);
	assert_int_equal(op->check(&args, why), 0);
	return args;
}

static void test_16_bit_sums_are_not_rounded_between_parts(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct op_args args = sum_of_ones(i ? &op_reduce : &op_gemm), part;
		struct op_cut cut;
		float sum = NAN;

		kernel_cut(&wide_kernel, &args, ONES / 10, &cut);
		assert_true(cut.wide);
		assert_int_equal(cut.n_parts, ONES / 10);
		for (uint32_t p = 0; p < cut.n_parts; p++) {
			op_part(&args, &cut, p, &part);
			op_output(&part)->data = &sum;
			args.op->reference(&part);
		}
		assert_true(sum == ONES);
	}
}

static void test_16_bit_sums_stay_whole_where_they_would_be_rounded(void **state)
{
	struct op_args args = sum_of_ones(&op_gemm);
	struct op_cut cut;

	(void)state;
	kernel_cut(&narrow_kernel, &args, 100, &cut);
	assert_int_equal(cut.n_parts, 1);
}

static bool takes_one_type(const struct op_args *args, const char **ret_why_not)
{
	(void)ret_why_not;
	return op_output_const(args)->dtype == args->views[0].dtype;
}

/* A kernel whose parts may be wide, but not these: it is cut by rows all the same. */
static void test_where_parts_cannot_be_wide_they_are_narrow(void **state)
{
	const struct kernel kernel = {.supports = takes_one_type, .wide_output = true};
	struct op_args args = sum_of_ones(&op_gemm);
	struct op_cut cut;

	(void)state;
	args.views[0].shape[0] = op_output(&args)->shape[0] = 64;
	args.views[0].strides[0] = 0;
	kernel_cut(&wide_kernel, &args, 1000, &cut);
	assert_true(cut.wide);
	kernel_cut(&kernel, &args, 1000, &cut);
	assert_false(cut.wide);
	assert_int_equal(cut.n_parts, 64);
}

/* The largest of some numbers is one of them, however often it is rounded. */
static void test_16_bit_maxima_need_no_wide_output(void **state)
{
	struct op_args args = sum_of_ones(&op_reduce);
	struct op_cut cut;

	(void)state;
	args.params.reduce.kind = KOPS_MAX;
	kernel_cut(&wide_kernel, &args, 100, &cut);
	assert_true(cut.n_parts >= 100 && !cut.wide);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_the_parts_are_the_whole),
	    cmocka_unit_test(test_how_finely),
	    cmocka_unit_test(test_16_bit_sums_are_not_rounded_between_parts),
	    cmocka_unit_test(test_16_bit_sums_stay_whole_where_they_would_be_rounded),
	    cmocka_unit_test(test_where_parts_cannot_be_wide_they_are_narrow),
	    cmocka_unit_test(test_16_bit_maxima_need_no_wide_output),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
