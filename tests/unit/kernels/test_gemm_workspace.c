/* Tests the workspace of a product on the CPU at extreme extents, and which kernel computes the smallest. */
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cblas.h>
#include <cmocka.h>

#include "common/cpu.h"
#include "gemm/gemm.h"

static const struct kernel *kernel(void)
{
	assert_string_equal(gemm_cpu_kernels.kernels[0].name, "openblas");
	return &gemm_cpu_kernels.kernels[0];
}

/* Makes (m, k) times (k, 1) with gaps and strides of 0 in the inputs, which must be packed. */
static struct op_args product(kops_dtype dtype, uint64_t m, uint64_t k)
{
	static const char spaces[3];
	struct op_args args = {.op = op_by_name("gemm"), .params.gemm = {.alpha = 1}};
	char why[WHY_BYTES];

	args.views[0] =
	    (struct view){.space = &spaces[0], .dtype = dtype, .rank = 2, .shape = {m, k}, .strides = {0, 2}};
	args.views[1] = (struct view){.space = &spaces[1], .dtype = dtype, .rank = 2, .shape = {k, 1}};
	args.views[GEMM_C] =
	    (struct view){.space = &spaces[2], .dtype = dtype, .rank = 2, .shape = {m, 1}, .strides = {1, 1}};
	assert_int_equal(op_check(&args, why), 0);
	return args;
}

static void test_small(void **state)
{
	struct op_args args = product(KOPS_F64, 100, 10);

	(void)state;
	assert_true(kernel()->workspace(&args) >= 100 * 10 * 8 + 10 * 8);
	assert_true(kernel()->workspace(&args) < 100 * 10 * 8 + 10 * 8 + 1024);
}

/* (2^30 + 1) (2^31 - 1) * 8 bytes are 2^33 - 8 modulo 2^64, which a host may have. */
static void test_more_than_64_bits(void **state)
{
	struct op_args args = product(KOPS_F64, (1u << 30) + 1, INT_MAX);
	const char *why_not;

	(void)state;
	assert_true(!kernel()->supports(&args, &why_not) || kernel()->workspace(&args) == UINT64_MAX);
	args = product(KOPS_F64, INT_MAX, INT_MAX);
	assert_true(!kernel()->supports(&args, &why_not) || kernel()->workspace(&args) == UINT64_MAX);
}

static void test_just_64_bits(void **state)
{
	struct op_args args = product(KOPS_F32, INT_MAX, INT_MAX);

	(void)state;
	assert_true(kernel()->workspace(&args) >= (uint64_t)INT_MAX * INT_MAX * 4);
}

/* Added one by one in f32, 2^20 equal terms would be wrong by far more than the last digits. */
static void test_equal_terms_are_one(void **state)
{
	struct op_args args = product(KOPS_F32, 4, 1 << 20);
	float a = 0.1f, b = 0.3f, c[4] = {NAN, NAN, NAN, NAN};
	_Alignas(256) char workspace[1024];
	const char *why_not;

	(void)state;
	args.views[0].strides[2] = 0;
	args.views[0].data = &a;
	args.views[1].data = &b;
	args.views[GEMM_C].data = c;
	assert_true(kernel()->supports(&args, &why_not));
	assert_true(kernel()->workspace(&args) <= sizeof workspace);
	assert_int_equal(kernel()->launch(&args, &(struct launch){.workspace = workspace}), 0);
	for (unsigned i = 0; i < 4; i++)
		assert_true(fabs(c[i] - (double)a * b * (1 << 20)) < 0.01);
}

/* An element's bits must not depend on the product's size, so the kernel must not either. */
static void test_one_kernel_for_all_sizes(void **state)
{
	static const kops_dtype dtypes[] = {KOPS_F32, KOPS_F64, KOPS_F16, KOPS_BF16};
	const struct kernel *chosen;
	char why[WHY_BYTES];

	(void)state;
	for (unsigned i = 0; i < 4; i++)
		for (uint64_t m = 1; m <= 64; m++)
			for (uint64_t k = 1; k <= 64; k += k < 4 ? 1 : 5) {
				struct op_args args = product(dtypes[i], m, k);
				assert_int_equal(
				    kernel_choose(&gemm_cpu_kernels, &args, "", NULL, 0, &chosen, why), 0);
				assert_string_equal(chosen->name, "openblas");
			}
}

/* A product beside another must not wait for OpenBLAS's threads. */
static void test_which_products_need_openblas_threads(void **state)
{
	static const struct {
		uint64_t m, n, k;
		bool exclusive;
	} cases[] = {{64, 64, 64, false},
	             {64, 65, 64, true},
	             {1, 96, 96, false},
	             {97, 1, 96, true},
	             {300, 300, 0, false}};
	float numbers[3] = {0}; /* only their places count */

	(void)state;
	for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct op_args args = {.op = op_by_name("gemm"), .params.gemm = {.alpha = 1}};
		const uint64_t m = cases[i].m, n = cases[i].n, k = cases[i].k;
		char why[WHY_BYTES];

		args.views[0] =
		    (struct view){.dtype = KOPS_F32, .rank = 2, .shape = {m, k}, .strides = {(int64_t)k, 1}};
		args.views[1] =
		    (struct view){.dtype = KOPS_F32, .rank = 2, .shape = {k, n}, .strides = {(int64_t)n, 1}};
		args.views[GEMM_C] =
		    (struct view){.dtype = KOPS_F32, .rank = 2, .shape = {m, n}, .strides = {(int64_t)n, 1}};
		args.views[GEMM_A].space = &numbers[0];
		args.views[GEMM_B].space = &numbers[1];
		args.views[GEMM_C].space = &numbers[2];
		assert_int_equal(op_check(&args, why), 0);
		openblas_set_num_threads(2);
		assert_int_equal(kernel()->exclusive(&args), cases[i].exclusive);
		openblas_set_num_threads(1);
		assert_false(kernel()->exclusive(&args));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_small),
	    cmocka_unit_test(test_more_than_64_bits),
	    cmocka_unit_test(test_just_64_bits),
	    cmocka_unit_test(test_equal_terms_are_one),
	    cmocka_unit_test(test_one_kernel_for_all_sizes),
	    cmocka_unit_test(test_which_products_need_openblas_threads),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
