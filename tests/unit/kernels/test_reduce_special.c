/* Tests the CPU kernels of reduce and arg_reduce at special values, ties and shapes without elements. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/cpu.h"
#include "common/half.h"
#include "common/threads.h"

#define COLUMNS 1500
#define ROWS    3

static double x[ROWS * COLUMNS], y[ROWS]; /* any type fits */
static const kops_dtype dtypes[] = {KOPS_F32, KOPS_F64, KOPS_F16, KOPS_BF16};

/* ROWS rows of n elements. by_rows: those of a row are adjacent. */
static struct op_args args_of(const char *op, kops_dtype dtype, uint64_t n, bool by_rows)
{
	struct op_args args = {.op = op_by_name(op)};

	op_set_defaults(&args);
	args.views[0] = (struct view){
	    .space = x, .data = x, .dtype = dtype, .rank = 2, .shape = {ROWS, n}, .strides = {1, ROWS}};
	if (by_rows)
		view_make_dense(&args.views[0]);
	args.views[1] =
	    (struct view){.space = y, .data = y, .dtype = dtype, .rank = 1, .shape = {ROWS}, .strides = {1}};
	if (strcmp(op, "arg_reduce") == 0)
		args.views[1].dtype = KOPS_I32;
	return args;
}

static void run(const struct kernel *kernel, struct op_args args)
{
	static _Alignas(256) char workspace[1 << 16];
	const struct launch launch = {.workspace = workspace, .workspace_bytes = sizeof workspace};
	char why[WHY_BYTES];

	assert_int_equal(op_check(&args, why), 0);
	assert_true(!kernel->workspace || kernel->workspace(&args) <= sizeof workspace);
	memset(y, 0xff, sizeof y);
	assert_int_equal(kernel->launch(&args, &launch), 0);
}

static void put(kops_dtype dtype, uint64_t n, bool by_rows, uint64_t row, uint64_t i, double value)
{
	half_store(x, dtype, (int64_t)(by_rows ? row * n + i : i * ROWS + row), value);
}

static void fill(kops_dtype dtype, uint64_t n, bool by_rows, double value)
{
	for (uint64_t row = 0; row < ROWS; row++)
		for (uint64_t i = 0; i < n; i++)
			put(dtype, n, by_rows, row, i, value);
}

typedef void each_case(const struct kernel *kernel, kops_dtype dtype, uint64_t n, bool by_rows);

static void of_each(const struct kernel_list *list, each_case *check)
{
	static const uint64_t columns[] = {1, 2, 31, 33, 257, COLUMNS};

	for (unsigned threads = 1; threads <= 3; threads += 2) {
		threads_set(threads);
		for (size_t k = 0; k < list->n; k++)
			for (unsigned d = 0; d < 4; d++)
				for (unsigned c = 0; c < sizeof columns / sizeof *columns; c++) {
					check(&list->kernels[k], dtypes[d], columns[c], true);
					check(&list->kernels[k], dtypes[d], columns[c], false);
				}
	}
	threads_stop();
}

/* ---- arg_reduce ---- */

static void find(const struct kernel *kernel, kops_dtype dtype, uint64_t n, bool by_rows,
                 enum arg_reduction kind)
{
	struct op_args args = args_of("arg_reduce", dtype, n, by_rows);

	args.params.arg_reduce.kind = kind;
	run(kernel, args);
}

static int32_t index_of(uint64_t row)
{
	return ((const int32_t *)y)[row];
}

/* Row 0: all equal; row 1: the best one twice, and zeros of both signs; row 2: NaN twice, behind a better one.
 */
static void check_index(const struct kernel *kernel, kops_dtype dtype, uint64_t n, bool by_rows)
{
	uint64_t first = n / 3, second = n - 1;

	for (int kind = ARG_MAX; kind <= ARG_MIN; kind++) {
		double sign = kind == ARG_MAX ? 1 : -1;

		fill(dtype, n, by_rows, -sign * (double)INFINITY);
		put(dtype, n, by_rows, 1, first, -0.0);
		put(dtype, n, by_rows, 1, second, 0.0);
		put(dtype, n, by_rows, 2, 0, sign * (double)INFINITY);
		put(dtype, n, by_rows, 2, first, (double)NAN);
		put(dtype, n, by_rows, 2, second, (double)NAN);
		find(kernel, dtype, n, by_rows, (enum arg_reduction)kind);
		assert_int_equal(index_of(0), 0);
		assert_int_equal(index_of(1), first);
		assert_int_equal(index_of(2), first);
		find(kernel, dtype, n, by_rows, kind == ARG_MAX ? ARG_MIN : ARG_MAX);
		assert_int_equal(index_of(0), 0);
		assert_int_equal(index_of(1), n > 2 ? 0 : first);
		assert_int_equal(index_of(2), first);
	}
}

static void the_first_of_equal_ones_and_of_nans_is_found(void **state)
{
	(void)state;
	of_each(&arg_reduce_cpu_kernels, check_index);
}

static void there_is_no_index_in_a_row_without_elements(void **state)
{
	struct op_args args = args_of("arg_reduce", KOPS_F32, 0, true);
	char why[WHY_BYTES];

	(void)state;
	assert_int_equal(op_check(&args, why), KOPS_E_SHAPE);
	assert_string_equal(why, "x is 3x0: there is no index along its last axis");
	args.views[0].shape[0] = args.views[1].shape[0] = 0;
	assert_int_equal(op_check(&args, why), 0);
}

static void indices_are_i32(void **state)
{
	struct op_args args = args_of("arg_reduce", KOPS_F16, (uint64_t)INT32_MAX + 1, true), again;
	char why[WHY_BYTES];

	(void)state;
	args.views[0].strides[0] = args.views[0].strides[1] = 0;
	again = args;
	assert_int_equal(op_check(&args, why), KOPS_E_SHAPE);
	assert_non_null(strstr(why, "2147483648 elements along its last axis; indices are i32"));
	again.views[0].shape[1]--;
	assert_int_equal(op_check(&again, why), 0);
	args = args_of("arg_reduce", KOPS_F32, 3, true);
	args.views[1].dtype = KOPS_F32;
	assert_int_equal(op_check(&args, why), KOPS_E_DTYPE);
	args = args_of("arg_reduce", KOPS_F32, 3, true);
	args.views[1].strides[0] = 0;
	assert_int_equal(op_check(&args, why), KOPS_E_OVERLAP);
}

/* Parts along the row hand on what they found. */
static void parts_find_what_the_whole_does(void **state)
{
	static struct {
		double value;
		int64_t index;
	} carried[ROWS];

	(void)state;
	for (size_t k = 0; k < arg_reduce_cpu_kernels.n; k++)
		for (uint64_t at = 0; at < 40; at++) {
			struct op_args args = args_of("arg_reduce", KOPS_F32, 40, true);
			const struct launch launch = {0};
			char why[WHY_BYTES];

			fill(KOPS_F32, 40, true, 1);
			put(KOPS_F32, 40, true, 1, at, 2);
			put(KOPS_F32, 40, true, 2, at, (double)NAN);
			assert_int_equal(op_check(&args, why), 0);
			args.carried = carried;
			assert_int_equal(args.op->carried_bytes(&args), sizeof carried);
			for (uint64_t first = 0; first < 40; first += 15) {
				struct op_args part = args;

				part.op->step_part(&part, 0, first, 40 - first < 15 ? 40 - first : 15);
				assert_int_equal(arg_reduce_cpu_kernels.kernels[k].launch(&part, &launch), 0);
			}
			assert_int_equal(index_of(0), 0);
			assert_int_equal(index_of(1), at);
			assert_int_equal(index_of(2), at);
		}
}

/* ---- min and prod ---- */

static void reduce(const struct kernel *kernel, kops_dtype dtype, uint64_t n, bool by_rows, kops_reduction kind)
{
	struct op_args args = args_of("reduce", dtype, n, by_rows);

	args.params.reduce.kind = kind;
	run(kernel, args);
}

static double result(kops_dtype dtype, int64_t row)
{
	return half_load(y, dtype, row);
}

static void check_values(const struct kernel *kernel, kops_dtype dtype, uint64_t n, bool by_rows)
{
	fill(dtype, n, by_rows, 1);
	put(dtype, n, by_rows, 0, n - 1, -3);
	put(dtype, n, by_rows, 1, n / 2, 0);
	put(dtype, n, by_rows, 2, n / 2, (double)NAN);
	reduce(kernel, dtype, n, by_rows, KOPS_MIN);
	assert_true(result(dtype, 0) == -3);
	assert_true(result(dtype, 1) == 0);
	assert_true(isnan(result(dtype, 2)));
	reduce(kernel, dtype, n, by_rows, KOPS_PROD);
	assert_true(result(dtype, 0) == -3);
	assert_true(result(dtype, 1) == 0);
	assert_true(isnan(result(dtype, 2)));
	put(dtype, n, by_rows, 2, n / 2, -(double)INFINITY);
	reduce(kernel, dtype, n, by_rows, KOPS_MIN);
	assert_true(result(dtype, 2) == -(double)INFINITY);
	reduce(kernel, dtype, n, by_rows, KOPS_PROD);
	assert_true(result(dtype, 2) == -(double)INFINITY);
}

static void the_smallest_and_products_are_right(void **state)
{
	(void)state;
	of_each(&reduce_cpu_kernels, check_values);
}

/* A product of f32 and smaller types may leave f32's range on its way. */
static void products_are_made_in_f64(void **state)
{
	(void)state;
	for (size_t k = 0; k < reduce_cpu_kernels.n; k++)
		for (unsigned d = 0; d < 4; d++)
			for (int by_rows = 0; by_rows < 2; by_rows++) {
				fill(dtypes[d], 60, by_rows, 0x1p-12);
				for (uint64_t row = 0; row < ROWS; row++)
					for (uint64_t i = 0; i < 30; i++)
						put(dtypes[d], 60, by_rows, row, row == 1 ? i : 2 * i, 0x1p12);
				reduce(&reduce_cpu_kernels.kernels[k], dtypes[d], 60, by_rows, KOPS_PROD);
				for (int64_t row = 0; row < ROWS; row++)
					assert_true(result(dtypes[d], row) == 1);
			}
}

static void rows_without_elements_have_neutral_results(void **state)
{
	static const double want[] = {[KOPS_SUM] = 0,
	                              [KOPS_MAX] = -(double)INFINITY,
	                              [KOPS_MEAN] = (double)NAN,
	                              [KOPS_MIN] = (double)INFINITY,
	                              [KOPS_PROD] = 1};

	(void)state;
	for (size_t k = 0; k < reduce_cpu_kernels.n; k++)
		for (unsigned d = 0; d < 4; d++)
			for (int kind = KOPS_SUM; kind <= KOPS_PROD; kind++) {
				reduce(&reduce_cpu_kernels.kernels[k], dtypes[d], 0, true,
				       (kops_reduction)kind);
				for (int64_t row = 0; row < ROWS; row++)
					assert_true(isnan(want[kind]) ? isnan(result(dtypes[d], row))
					                              : result(dtypes[d], row) == want[kind]);
			}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_first_of_equal_ones_and_of_nans_is_found),
	    cmocka_unit_test(there_is_no_index_in_a_row_without_elements),
	    cmocka_unit_test(indices_are_i32),
	    cmocka_unit_test(parts_find_what_the_whole_does),
	    cmocka_unit_test(the_smallest_and_products_are_right),
	    cmocka_unit_test(products_are_made_in_f64),
	    cmocka_unit_test(rows_without_elements_have_neutral_results),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
