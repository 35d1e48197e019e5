/* Tests products of complex numbers on the CPU: factors, conjugates, what is not read, and what is refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/cpu.h"
#include "common/half.h"
#include "common/part.h"
#include "gemm/gemm.h"

#define NUMBERS_MAX 64

static const kops_dtype dtypes[] = {KOPS_C64, KOPS_C128};

/* Memory for one operand, of either type. */
union storage {
	float f32[2 * NUMBERS_MAX];
	double f64[2 * NUMBERS_MAX];
};
static union storage a, b, c;

static void put(union storage *to, kops_dtype dtype, unsigned at, double re, double im)
{
	half_store(to, dtype_component(dtype), 2 * at, re);
	half_store(to, dtype_component(dtype), 2 * at + 1, im);
}

static void is(kops_dtype dtype, unsigned at, double re, double im)
{
	assert_true(half_load(&c, dtype_component(dtype), 2 * at) == re);
	assert_true(half_load(&c, dtype_component(dtype), 2 * at + 1) == im);
}

static struct view matrix(union storage *data, kops_dtype dtype, uint64_t rows, uint64_t cols)
{
	struct view v = {.data = data, .space = data, .dtype = dtype, .rank = 2, .shape = {rows, cols}};

	view_make_dense(&v);
	return v;
}

static struct op_args product(kops_dtype dtype, uint64_t m, uint64_t n, uint64_t k)
{
	struct op_args args = {.op = op_by_name("gemm")};

	op_set_defaults(&args);
	args.views[GEMM_A] = matrix(&a, dtype, m, k);
	args.views[GEMM_B] = matrix(&b, dtype, k, n);
	args.views[GEMM_C] = matrix(&c, dtype, m, n);
	return args;
}

static void run(struct op_args args, const char *kernel)
{
	static char workspace[4096];
	char why[WHY_BYTES];

	assert_int_equal(op_check(&args, why), 0);
	for (size_t i = 0; i < gemm_cpu_kernels.n; i++) {
		const struct kernel *k = &gemm_cpu_kernels.kernels[i];
		if (strcmp(k->name, kernel) != 0)
			continue;
		assert_true(!k->workspace || k->workspace(&args) <= sizeof workspace);
		assert_int_equal(k->launch(&args, &(struct launch){.workspace = workspace}), 0);
	}
}

static void each(void (*test)(kops_dtype dtype, const char *kernel))
{
	for (unsigned i = 0; i < 2; i++) {
		test(dtypes[i], "openblas");
		test(dtypes[i], "reference");
	}
}

/* (1 + 2i)(3 + 5i) = -7 + 11i */
static void conjugates(kops_dtype dtype, const char *kernel)
{
	static const double re[] = {-7, 13, 13, -7}, im[] = {11, -1, 1, -11};

	put(&a, dtype, 0, 1, 2);
	put(&b, dtype, 0, 3, 5);
	for (unsigned i = 0; i < 4; i++) {
		struct op_args args = product(dtype, 1, 1, 1);
		args.params.gemm.conj_a = i & 1;
		args.params.gemm.conj_b = i >> 1 & 1;
		run(args, kernel);
		is(dtype, 0, re[i], im[i]);
	}
}

static void test_conjugates(void **state)
{
	(void)state;
	each(conjugates);
}

/* The matrix (1 + i, 2; 3i, 4 - i), every way that it may lie in memory, times its conjugate transpose. */
static void layouts(kops_dtype dtype, const char *kernel)
{
	static const struct {
		int64_t offset, row, col;
	} layouts[] = {{0, 2, 1}, {0, 1, 2}, {0, 3, 1}, {0, 1, 7}, {30, -9, -2}, {0, 8, 3}};
	static const double re[] = {1, 2, 0, 4}, im[] = {1, 0, 3, -1};
	size_t size = dtype_size(dtype);

	for (unsigned i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
		struct op_args args = product(dtype, 2, 2, 2);
		struct view *va = &args.views[GEMM_A], *vb = &args.views[GEMM_B];
		for (int64_t e = 0; e < 4; e++)
			put(&a, dtype,
			    (unsigned)(layouts[i].offset + e / 2 * layouts[i].row + e % 2 * layouts[i].col),
			    re[e], im[e]);
		va->offset = (uint64_t)layouts[i].offset * size;
		va->data = (char *)&a + va->offset;
		va->strides[0] = layouts[i].row;
		va->strides[1] = layouts[i].col;
		*vb = *va;
		vb->strides[0] = layouts[i].col;
		vb->strides[1] = layouts[i].row;
		args.params.gemm.conj_b = true;
		memset(&c, 0xff, sizeof c);
		run(args, kernel);
		is(dtype, 0, 6, 0);
		is(dtype, 1, 11, -1);
		is(dtype, 2, 11, 1);
		is(dtype, 3, 26, 0);
	}
}

static void test_layouts(void **state)
{
	(void)state;
	each(layouts);
}

/* i (1 + i)(2) + (1 - i)(3 + i) = (-2 + 2i) + (4 - 2i) */
static void complex_factors(kops_dtype dtype, const char *kernel)
{
	struct op_args args = product(dtype, 1, 1, 1);

	put(&a, dtype, 0, 1, 1);
	put(&b, dtype, 0, 2, 0);
	put(&c, dtype, 0, 3, 1);
	args.params.gemm = (struct gemm_params){.alpha_imag = 1, .beta = 1, .beta_imag = -1};
	assert_true(op_reads_output(&args, GEMM_C));
	assert_false(op_ignores(&args, GEMM_A));
	run(args, kernel);
	is(dtype, 0, 2, 0);
	/* A beta of i alone reads c, too. */
	args.params.gemm = (struct gemm_params){.beta_imag = 1};
	assert_true(op_reads_output(&args, GEMM_C));
	assert_true(op_ignores(&args, GEMM_A));
	put(&a, dtype, 0, NAN, NAN);
	put(&c, dtype, 0, 3, 1);
	run(args, kernel);
	is(dtype, 0, -1, 3);
}

static void test_complex_factors(void **state)
{
	(void)state;
	each(complex_factors);
}

static void not_read(kops_dtype dtype, const char *kernel)
{
	struct op_args args = product(dtype, 2, 1, 1), empty = product(dtype, 2, 1, 0);

	put(&a, dtype, 0, 1, 0);
	put(&a, dtype, 1, 0, 1);
	put(&b, dtype, 0, 1, 1);
	memset(&c, 0xff, sizeof c);
	run(args, kernel);
	is(dtype, 0, 1, 1);
	is(dtype, 1, -1, 1);
	memset(&c, 0xff, sizeof c);
	run(empty, kernel);
	is(dtype, 1, 0, 0);
}

static void test_old_numbers_are_not_read(void **state)
{
	(void)state;
	each(not_read);
}

/* A million times (1 + i)(1 - i), all the same elements. */
static void equal_terms(kops_dtype dtype, const char *kernel)
{
	struct op_args args = product(dtype, 1, 1, 1000000);

	put(&a, dtype, 0, 1, 1);
	put(&b, dtype, 0, 1, 1);
	args.views[GEMM_A].strides[1] = args.views[GEMM_B].strides[0] = 0;
	args.params.gemm.conj_b = true;
	args.params.gemm.alpha_imag = 0.5;
	run(args, kernel);
	is(dtype, 0, 2e6, 1e6);
}

static void test_equal_terms(void **state)
{
	(void)state;
	each(equal_terms);
}

/* Later parts along K continue from what the first ones left. */
static void test_parts(void **state)
{
	struct op_args args = product(KOPS_C128, 1, 1, 3);
	const struct op_cut cut = {.n_parts = 3, .n_steps = 3, .step_chunk = 1};
	char why[WHY_BYTES];

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		put(&a, KOPS_C128, i, 1, i);
		put(&b, KOPS_C128, i, 0, 1);
	}
	put(&c, KOPS_C128, 0, 1, 0);
	args.params.gemm.beta = 0;
	args.params.gemm.beta_imag = 2;
	assert_int_equal(op_check(&args, why), 0);
	for (uint32_t i = 0; i < cut.n_parts; i++) {
		struct op_args part;
		op_part(&args, &cut, i, &part);
		part.views[GEMM_A].data = (char *)&a + i * 16;
		part.views[GEMM_B].data = (char *)&b + i * 16;
		run(part, "reference");
	}
	is(KOPS_C128, 0, -3, 5);
}

static void refused(struct op_args args, int code, const char *sentence)
{
	char why[WHY_BYTES];

	assert_int_equal(op_check(&args, why), code);
	assert_string_equal(why, sentence);
}

static void test_refusals(void **state)
{
	struct op_args args = product(KOPS_C64, 2, 2, 2), real = product(KOPS_F32, 2, 2, 2);
	char why[WHY_BYTES];

	(void)state;
	args.views[GEMM_BIAS] = matrix(&a, KOPS_C64, 2, 2);
	refused(args, KOPS_E_INVALID,
	        "c is c64: complex products take no bias; use real types, or another op for it");
	args.views[GEMM_BIAS] = (struct view){.rank = 0};
	args.params.gemm.activation = UNARY_RELU;
	refused(args, KOPS_E_INVALID,
	        "c is c64: complex products take no activation; use real types, or another op for it");
	args.params.gemm.activation = UNARY_NONE;
	args.params.gemm.beta_imag = 1e39;
	refused(args, KOPS_E_INVALID, "beta_imag is 1e+39, beyond the range of f32; scale the data instead");
	args.params.gemm.beta_imag = 0.1;
	assert_int_equal(op_check(&args, why), 0);
	assert_true(args.params.gemm.beta_imag == (double)0.1f);

	real.params.gemm.conj_a = true;
	assert_int_equal(op_check(&real, why), 0);
	assert_false(real.params.gemm.conj_a);
	real.params.gemm.alpha_imag = -1;
	refused(real, KOPS_E_INVALID, "alpha_imag is -1, and c is f32; only products of c64 and c128 take it");
	real.params.gemm.alpha_imag = 0;
	real.params.gemm.beta_imag = NAN;
	assert_int_equal(op_check(&real, why), KOPS_E_INVALID);
	real = product(KOPS_C64, 2, 2, 2);
	real.views[GEMM_B].dtype = KOPS_F32;
	refused(real, KOPS_E_DTYPE, "a is c64, b is f32: gemm wants one type for both");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_conjugates),      cmocka_unit_test(test_layouts),
	    cmocka_unit_test(test_complex_factors), cmocka_unit_test(test_old_numbers_are_not_read),
	    cmocka_unit_test(test_equal_terms),     cmocka_unit_test(test_parts),
	    cmocka_unit_test(test_refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
