/* Compares sums and means on the CPU whose elements together exceed the range of f32 with exact ones. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/cpu.h"
#include "common/half.h"
#include "common/threads.h"

#define COLUMNS_MAX 5000
#define ROWS        3

static double x[ROWS * COLUMNS_MAX], y[ROWS]; /* any type fits */
static const kops_dtype dtypes[] = {KOPS_F32, KOPS_BF16, KOPS_F16};
static const uint64_t columns[] = {2, 3, 31, 32, 33, 256, 257, 1000, COLUMNS_MAX};

static double largest(kops_dtype dtype)
{
	return dtype == KOPS_F16 ? 65504 : dtype == KOPS_BF16 ? 0x1.fep127 : (double)FLT_MAX;
}

/* by_rows: the elements of a row are adjacent. */
static void reduce(const struct kernel *kernel, kops_dtype dtype, uint64_t n, bool by_rows, kops_reduction kind)
{
	static _Alignas(256) char workspace[1 << 16];
	const struct launch launch = {.workspace = workspace, .workspace_bytes = sizeof workspace};
	struct op_args args = {.op = op_by_name("reduce"), .params.reduce = {.kind = kind}};
	char why[WHY_BYTES];

	args.views[0] = (struct view){
	    .space = x, .data = x, .dtype = dtype, .rank = 2, .shape = {ROWS, n}, .strides = {1, ROWS}};
	if (by_rows)
		view_make_dense(&args.views[0]);
	args.views[1] =
	    (struct view){.space = y, .data = y, .dtype = dtype, .rank = 1, .shape = {ROWS}, .strides = {1}};
	assert_int_equal(op_check(&args, why), 0);
	assert_true(!kernel->workspace || kernel->workspace(&args) <= sizeof workspace);
	assert_int_equal(kernel->launch(&args, &launch), 0);
}

/*
 * Fills row r: 0: the largest number; 1: its negative; 2: the largest, then its negative as often, or once
 * less.
 */
static void fill(kops_dtype dtype, uint64_t n, bool by_rows)
{
	for (uint64_t r = 0; r < ROWS; r++)
		for (uint64_t i = 0; i < n; i++) {
			double sign = r == 0 || (r == 2 && i < n / 2 + n % 2) ? 1 : -1;
			half_store(x, dtype, (int64_t)(by_rows ? r * n + i : i * ROWS + r),
			           sign * largest(dtype));
		}
}

static void check(const struct kernel *kernel, kops_dtype dtype, uint64_t n, bool by_rows)
{
	double max = largest(dtype);

	fill(dtype, n, by_rows);
	reduce(kernel, dtype, n, by_rows, KOPS_MEAN);
	assert_true(half_load(y, dtype, 0) == max);
	assert_true(half_load(y, dtype, 1) == -max);
	reduce(kernel, dtype, n, by_rows, KOPS_SUM);
	assert_true(half_load(y, dtype, 0) == (double)INFINITY);
	assert_true(half_load(y, dtype, 1) == -(double)INFINITY);
	assert_true(half_load(y, dtype, 2) == (n % 2 ? max : 0));
}

static void test_all(void **state)
{
	(void)state;
	for (unsigned threads = 1; threads <= 3; threads += 2)
		for (size_t k = 0; k < reduce_cpu_kernels.n; k++)
			for (unsigned d = 0; d < 3; d++)
				for (unsigned c = 0; c < sizeof columns / sizeof *columns; c++) {
					threads_set(threads);
					check(&reduce_cpu_kernels.kernels[k], dtypes[d], columns[c], true);
					check(&reduce_cpu_kernels.kernels[k], dtypes[d], columns[c], false);
				}
	threads_stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_all)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
