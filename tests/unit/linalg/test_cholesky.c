/* Tests the CPU kernels of cholesky at special values, in and out of place, and what the op refuses. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cholesky/cholesky.h"
#include "common/cpu.h"
#include "common/threads.h"
#include "unit/kernels/run_kernel.h"
#include "unit/linalg/assert_refused.h"

#define N_MAX 80

/* One matrix of order n in f64, its factor and info. */
struct problem {
	struct op_args args;
	double a[N_MAX * N_MAX], factor[N_MAX * N_MAX];
	int32_t info;
};

static void make(struct problem *p, uint64_t n)
{
	struct view *v = p->args.views;

	*p = (struct problem){.args.op = op_by_name("cholesky"), .info = -1};
	op_set_defaults(&p->args);
	v[CHOLESKY_A] = (struct view){.dtype = KOPS_F64,
	                              .rank = 2,
	                              .shape = {n, n},
	                              .strides = {(int64_t)n, 1},
	                              .space = p->a,
	                              .data = p->a};
	v[CHOLESKY_FACTOR] = v[CHOLESKY_A];
	v[CHOLESKY_FACTOR].space = v[CHOLESKY_FACTOR].data = p->factor;
	v[CHOLESKY_INFO] = (struct view){
	    .dtype = KOPS_I32, .rank = 1, .shape = {1}, .strides = {1}, .space = &p->info, .data = &p->info};
	for (uint64_t i = 0; i < n; i++)
		for (uint64_t j = 0; j < n; j++) {
			p->a[i * n + j] = i == j ? (double)(n + 1) : 1.0 / (double)(i + j + 1);
			p->factor[i * n + j] = 7;
		}
}

static void each_kernel(void (*check)(const struct kernel *kernel))
{
	for (size_t i = 0; i < cholesky_cpu_kernels.n; i++)
		check(&cholesky_cpu_kernels.kernels[i]);
}

static void run(const struct kernel *kernel, struct problem *p)
{
	struct op_args args = p->args;
	const char *why_not;
	char why[WHY_BYTES];

	assert_int_equal(op_check(&args, why), 0);
	if (kernel->supports(&args, &why_not))
		run_kernel(kernel, p->args);
	else
		run_kernel(&cholesky_cpu_kernels.kernels[0], p->args);
}

/* L·Lᵀ against the lower triangle of a as it was, and zeros above. */
static void assert_factor(const struct problem *p, const double *a, const double *factor, double above)
{
	uint64_t n = p->args.views[CHOLESKY_A].shape[0];

	for (uint64_t i = 0; i < n; i++)
		for (uint64_t j = 0; j < n; j++) {
			double sum = 0;
			for (uint64_t k = 0; k <= j; k++)
				sum += factor[i * n + k] * factor[j * n + k];
			if (j > i)
				assert_true(factor[i * n + j] == above);
			else
				assert_true(fabs(sum - a[i * n + j]) < 1e-12 * (double)n);
		}
}

static void check_orders(const struct kernel *kernel)
{
	static const uint64_t orders[] = {1, 2, 3, 31, 64, 65, N_MAX};
	static struct problem p;

	for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
		make(&p, orders[i]);
		run(kernel, &p);
		assert_int_equal(p.info, 0);
		assert_factor(&p, p.a, p.factor, 0);
	}
}

static void check_in_place(const struct kernel *kernel)
{
	static struct problem p;
	static double before[N_MAX * N_MAX];

	make(&p, 65);
	p.args.views[CHOLESKY_FACTOR] = p.args.views[CHOLESKY_A];
	memcpy(before, p.a, sizeof before);
	run(kernel, &p);
	assert_int_equal(p.info, 0);
	assert_factor(&p, before, p.a, 0);
}

static void check_keep(const struct kernel *kernel)
{
	static struct problem p;

	make(&p, 33);
	p.args.params.plain.flags[CHOLESKY_KEEP] = true;
	run(kernel, &p);
	assert_factor(&p, p.a, p.factor, 7);
}

/* Uᵀ·U by rows is the same memory as L·Lᵀ by columns. */
static void check_upper(const struct kernel *kernel)
{
	static struct problem p;

	make(&p, 40);
	p.args.params.plain.flags[CHOLESKY_UPPER] = true;
	for (uint64_t i = 0; i < 40; i++)
		for (uint64_t j = 0; j < i; j++)
			p.a[i * 40 + j] = NAN; /* not read */
	run(kernel, &p);
	assert_int_equal(p.info, 0);
	for (uint64_t i = 0; i < 40; i++)
		for (uint64_t j = 0; j < 40; j++) {
			double sum = 0;
			for (uint64_t k = 0; k <= i; k++)
				sum += p.factor[k * 40 + i] * p.factor[k * 40 + j];
			assert_true(j >= i ? fabs(sum - p.a[i * 40 + j]) < 1e-10 : p.factor[i * 40 + j] == 0);
		}
}

static void assert_fails(const struct kernel *kernel, uint64_t n, uint64_t row, uint64_t col, double value,
                         int32_t info)
{
	static struct problem p;

	make(&p, n);
	p.a[row * n + col] = value;
	run(kernel, &p);
	assert_int_equal(p.info, info);
	for (uint64_t i = 0; i < n; i++)
		for (uint64_t j = 0; j < n; j++)
			assert_true(j > i ? p.factor[i * n + j] == 0 : isnan(p.factor[i * n + j]));
}

static void check_failures(const struct kernel *kernel)
{
	static const double not_positive[] = {0, -1, NAN, -INFINITY, -1e300};

	for (size_t i = 0; i < sizeof not_positive / sizeof not_positive[0]; i++) {
		assert_fails(kernel, 1, 0, 0, not_positive[i], 1);
		assert_fails(kernel, 50, 0, 0, not_positive[i], 1);
		assert_fails(kernel, 70, 37, 37, not_positive[i], 38);
		assert_fails(kernel, 70, 69, 69, not_positive[i], 70);
	}
	assert_fails(kernel, 70, 41, 3, NAN, 42);
	assert_fails(kernel, 70, 41, 3, INFINITY, 42);
	assert_fails(kernel, 20, 11, 3, -INFINITY, 12);
}

static void test_orders(void **state)
{
	(void)state;
	each_kernel(check_orders);
	each_kernel(check_in_place);
	each_kernel(check_keep);
	each_kernel(check_upper);
}

static void test_matrices_that_are_not_positive_definite(void **state)
{
	(void)state;
	each_kernel(check_failures);
}

/* The imaginary part of the diagonal counts as 0, and the factor's is 0. */
static void check_hermitian(const struct kernel *kernel)
{
	float a[8] = {4, 9, 1, 2, 0, -2, 9, INFINITY}, factor[8]; /* lower: 4; -2i, 9 */
	struct op_args args = {.op = op_by_name("cholesky")};

	op_set_defaults(&args);
	for (unsigned v = CHOLESKY_A; v <= CHOLESKY_FACTOR; v++)
		args.views[v] = (struct view){.dtype = KOPS_C64, .rank = 2, .shape = {2, 2}, .strides = {2, 1}};
	args.views[CHOLESKY_A].space = args.views[CHOLESKY_A].data = a;
	args.views[CHOLESKY_FACTOR].space = args.views[CHOLESKY_FACTOR].data = factor;
	run_kernel(kernel, args);
	const float want[8] = {2, 0, 0, 0, 0, -1, sqrtf(8), 0};
	for (unsigned i = 0; i < 8; i++)
		assert_true(fabsf(factor[i] - want[i]) < 1e-6f);
}

static void test_hermitian_matrices(void **state)
{
	(void)state;
	each_kernel(check_hermitian);
}

static void test_refusals(void **state)
{
	static struct problem p;
	struct op_args args;

	(void)state;
	make(&p, 5);
	args = p.args;
	args.views[CHOLESKY_A].shape[1] = 4;
	assert_refused(args, KOPS_E_SHAPE, "a is 5x4; its last two axes must have equal extents");
	args = p.args;
	args.views[CHOLESKY_A].rank = 1;
	assert_refused(args, KOPS_E_SHAPE, "a has rank 1; this op takes rank 2 to 4");
	args = p.args;
	args.views[CHOLESKY_INFO].shape[0] = 2;
	assert_refused(args, KOPS_E_SHAPE, "a is 5x5 and info 2; info must be 1");
	args = p.args;
	args.views[CHOLESKY_FACTOR].shape[0] = args.views[CHOLESKY_FACTOR].shape[1] = 4;
	assert_refused(args, KOPS_E_SHAPE, "the shapes must be equal");
	args = p.args;
	args.views[CHOLESKY_A].dtype = args.views[CHOLESKY_FACTOR].dtype = KOPS_F16;
	assert_refused(args, KOPS_E_DTYPE, "a is f16; cholesky takes f32, f64, c64 and c128");
	args = p.args;
	args.views[CHOLESKY_FACTOR].strides[0] = 0;
	assert_refused(args, KOPS_E_OVERLAP, "several elements at one address");
	args = p.args;
	args.views[CHOLESKY_FACTOR] = args.views[CHOLESKY_A];
	args.views[CHOLESKY_FACTOR].offset = 8;
	assert_refused(args, KOPS_E_OVERLAP, "without being the same view");
	for (unsigned v = CHOLESKY_A; v <= CHOLESKY_FACTOR; v++) {
		args.views[v].rank = 3;
		args.views[v].shape[0] = 0;
		args.views[v].shape[1] = args.views[v].shape[2] = 1ull << 31;
	}
	assert_refused(args, KOPS_E_SHAPE, "matrices have at most 2147483647 rows and columns");
}

/* Matrices of order 0 and batches of none are valid, and checked ones pass again. */
static void test_empty_and_checked_again(void **state)
{
	static struct problem p;
	char why[WHY_BYTES];

	(void)state;
	make(&p, 5);
	for (unsigned v = CHOLESKY_A; v <= CHOLESKY_FACTOR; v++)
		p.args.views[v].shape[0] = p.args.views[v].shape[1] = 0;
	assert_int_equal(op_check(&p.args, why), 0);
	make(&p, 6);
	p.args.params.plain.flags[CHOLESKY_UPPER] = true;
	for (int times = 0; times < 3; times++) {
		assert_int_equal(op_check(&p.args, why), 0);
		assert_int_equal(p.args.views[CHOLESKY_FACTOR].strides[2], 1);
		assert_int_equal(p.args.views[CHOLESKY_INFO].rank, 4);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_orders),
	    cmocka_unit_test(test_matrices_that_are_not_positive_definite),
	    cmocka_unit_test(test_hermitian_matrices),
	    cmocka_unit_test(test_refusals),
	    cmocka_unit_test(test_empty_and_checked_again),
	};

	threads_set(2);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	threads_stop();
	return failed;
}
