/*
 * Tests layer_norm on the CPU where random problems rarely go: means far larger than the deviations, rows of
 * one element, of equal ones and of none, and the ends of the range. There are also many short rows, and long
 * ones that threads share. Results are compared with sums in long double.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <float.h>
#include <math.h>

#include <cmocka.h>

#include "common/cpu.h"
#include "common/half.h"
#include "common/threads.h"
#include "layer_norm/layer_norm.h"

#define ELEMENTS_MAX 100003
#define EPS          1e-5

static double x[ELEMENTS_MAX]; /* the rows, and the same in the dtype of the run */
static double in[ELEMENTS_MAX], out[ELEMENTS_MAX], weight[ELEMENTS_MAX], bias[ELEMENTS_MAX];
static char workspace[1 << 16];
static const kops_dtype dtypes[] = {KOPS_F32, KOPS_F64, KOPS_F16, KOPS_BF16};
#define DTYPES 4

static struct view view_of(void *data, kops_dtype dtype, uint64_t rows, uint64_t cols, uint32_t rank)
{
	struct view v = {.space = data, .data = data, .dtype = dtype, .rank = rank, .shape = {rows, cols}};

	if (rank == 1)
		v.shape[0] = cols;
	view_make_dense(&v);
	return v;
}

static struct op_args args_of(kops_dtype dtype, uint64_t rows, uint64_t cols, double eps)
{
	struct op_args args = {.op = op_by_name("layer_norm")};

	op_set_defaults(&args);
	args.params.plain.numbers[LAYER_NORM_EPS] = eps;
	args.views[LAYER_NORM_X] = view_of(in, dtype, rows, cols, 2);
	args.views[LAYER_NORM_Y] = view_of(out, dtype, rows, cols, 2);
	for (uint64_t i = 0; i < rows * cols; i++) {
		half_store(in, dtype, (int64_t)i, x[i]);
		x[i] = half_load(in, dtype, (int64_t)i);
	}
	return args;
}

static void run(struct op_args args, const char *kernel)
{
	const struct kernel *k = &layer_norm_cpu_kernels.kernels[0];
	char why[WHY_BYTES];

	assert_int_equal(op_check(&args, why), 0);
	while (strcmp(k->name, kernel) != 0)
		k++;
	struct launch launch = {.workspace = workspace,
	                        .workspace_bytes = k->workspace ? k->workspace(&args) : 0};
	assert_true(launch.workspace_bytes <= sizeof workspace);
	assert_int_equal(k->launch(&args, &launch), 0);
}

/* Computes the exact column j of a row, without weight and bias. */
static double exact(const double *row, uint64_t cols, uint64_t j, double eps)
{
	long double mean = 0, squares = 0;

	for (uint64_t i = 0; i < cols; i++)
		mean += (long double)row[i] / (long double)cols;
	for (uint64_t i = 0; i < cols; i++)
		squares += ((long double)row[i] - mean) * ((long double)row[i] - mean) / (long double)cols;
	return (double)(((long double)row[j] - mean) / sqrtl(squares + (long double)eps));
}

static double roundoff(kops_dtype dtype)
{
	return dtype == KOPS_F64 ? 0x1p-53 : dtype == KOPS_F32 ? 0x1p-24 : dtype == KOPS_F16 ? 0x1p-11 : 0x1p-8;
}

/* Compares some columns of every row, by both kernels. roundings: of the type that results may be off. */
static void compare(kops_dtype dtype, uint64_t rows, uint64_t cols, double eps, double roundings)
{
	static const char *const kernels[] = {"vectorised", "reference"};

	for (unsigned k = 0; k < 2; k++) {
		run(args_of(dtype, rows, cols, eps), kernels[k]);
		for (uint64_t i = 0; i<rows * cols; i += cols> 3 ? cols / 3 : 1) {
			double got = half_load(out, dtype, (int64_t)i);
			double want = exact(&x[i / cols * cols], cols, i % cols, eps);
			if (!(fabs(got - want) <= roundings * roundoff(dtype) * (1 + fabs(want))))
				fail_msg("%s of %s: element %llu of rows of %llu is %.17g, should be %.17g",
				         kernels[k], dtype_name(dtype), (unsigned long long)i,
				         (unsigned long long)cols, got, want);
		}
	}
}

static double unit(void)
{
	return 2.0 * rand() / RAND_MAX - 1;
}

/* The one-pass formula, the mean of squares minus the square of the mean, would lose all digits of these. */
static void large_means_cost_no_accuracy(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ELEMENTS_MAX; i++)
		x[i] = 1000000 + 4 * (rand() % 5);
	compare(KOPS_F32, 3, 5000, EPS, 64);
	compare(KOPS_F32, 200, 100, EPS, 64);
	compare(KOPS_F64, 3, 5000, EPS, 1e6); /* x - mean has fewer digits than x */
	for (unsigned i = 0; i < ELEMENTS_MAX; i++)
		x[i] = 1000 + rand() % 4;
	compare(KOPS_F16, 3, 5000, EPS, 2);
}

static void rows_of_one_element_are_the_bias(void **state)
{
	(void)state;
	for (unsigned d = 0; d < DTYPES; d++)
		for (unsigned is_zero = 0; is_zero < 2; is_zero++) {
			x[0] = 3.25, x[1] = -1e4, x[2] = 0;
			struct op_args args = args_of(dtypes[d], 3, 1, is_zero ? 0 : EPS);
			args.views[LAYER_NORM_BIAS] = view_of(bias, dtypes[d], 1, 1, 1);
			half_store(bias, dtypes[d], 0, -0.5);
			run(args, "vectorised");
			for (int64_t i = 0; i < 3; i++) {
				double y = half_load(out, dtypes[d], i);
				assert_true(is_zero ? isnan(y) : y == -0.5);
			}
		}
}

static void equal_elements_are_no_distance_apart(void **state)
{
	static const double some[] = {0, 1, 0.1, 3e38, -1e-40, 12345.678};

	(void)state;
	for (unsigned d = 0; d < DTYPES; d++)
		for (unsigned s = 0; s < sizeof some / sizeof some[0]; s++) {
			if (dtypes[d] == KOPS_F16 && some[s] > 65504)
				continue;
			for (unsigned i = 0; i < 3 * 999; i++)
				x[i] = some[s];
			run(args_of(dtypes[d], 3, 999, EPS), "vectorised");
			for (int64_t i = 0; i < 3 * 999; i++)
				assert_true(fabs(half_load(out, dtypes[d], i)) <= 1e-13 * fabs(some[s]));
		}
}

/* Squares, sums and differences exceed the range of f32, but the results do not. */
static void numbers_at_the_ends_of_the_range(void **state)
{
	static const double ends[] = {3.3e38, 3.3e38, 65504, 3.3e38}, small[] = {1e-38, 1e-150, 1e-6, 1e-38};

	(void)state;
	for (unsigned d = 0; d < DTYPES; d++) {
		for (unsigned i = 0; i < 4 * 4999; i++)
			x[i] = ends[d] * (rand() % 3 ? 1 : -1) * (1 - fabs(unit()) / 8);
		compare(dtypes[d], 4, 4999, EPS, 64);
		compare(dtypes[d], 999, 20, EPS, 64);
		compare(dtypes[d], 4, 4999, 0, 64);
		for (unsigned i = 0; i < 4 * 4999; i++)
			x[i] = small[d] * unit();
		compare(dtypes[d], 4, 4999, 0, dtypes[d] == KOPS_F16 ? 4 : 64);
	}
}

static void many_short_rows_and_few_long_ones(void **state)
{
	static const uint64_t shapes[][2] = {{30000, 3}, {20000, 5}, {6000, 15},  {6000, 16},
	                                     {3000, 33}, {380, 255}, {380, 257},  {48, 2048},
	                                     {48, 2049}, {3, 33333}, {1, 100003}, {6, 16385}};

	static const double most[DTYPES] = {64, 1e4, 2, 2}; /* f64 has no more digits of a large mean */

	(void)state;
	for (unsigned i = 0; i < ELEMENTS_MAX; i++)
		x[i] = unit() + 0.5;
	threads_set(3);
	for (unsigned i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
		for (unsigned d = 0; d < DTYPES; d++)
			compare(dtypes[d], shapes[i][0], shapes[i][1], EPS, most[d]);
	threads_stop();
	threads_set(1);
}

static void weight_and_bias_count_where_they_are(void **state)
{
	const uint64_t rows = 7, cols = 2500; /* more than one piece */

	(void)state;
	for (unsigned i = 0; i < rows * cols; i++)
		x[i] = unit();
	for (unsigned d = 0; d < DTYPES; d++)
		for (unsigned given = 0; given < 4; given++) {
			kops_dtype dtype = dtypes[d];
			struct op_args args = args_of(dtype, rows, cols, EPS);
			for (int64_t i = 0; i < (int64_t)cols; i++) {
				half_store(weight, dtype, i, 0.25 * (double)(i % 5));
				half_store(bias, dtype, i, (double)(i % 3));
			}
			if (given & 1)
				args.views[LAYER_NORM_WEIGHT] = view_of(weight, dtype, 1, cols, 1);
			if (given & 2)
				args.views[LAYER_NORM_BIAS] = view_of(bias, dtype, 1, cols, 1);
			run(args, "vectorised");
			for (uint64_t i = 0; i < rows * cols; i += 311) {
				uint64_t j = i % cols;
				double t = exact(&x[i / cols * cols], cols, j, EPS);
				double want = t * (given & 1 ? 0.25 * (double)(j % 5) : 1) +
				              (given & 2 ? (double)(j % 3) : 0);
				assert_true(fabs(half_load(out, dtype, (int64_t)i) - want) <=
				            64 * (dtype < KOPS_F16 ? roundoff(dtype) : roundoff(dtype) / 16) *
				                (1 + fabs(want) + fabs(t)));
			}
		}
}

static void what_is_no_number_stays_in_its_row(void **state)
{
	static const double some[] = {NAN, INFINITY, -INFINITY};

	(void)state;
	for (unsigned d = 0; d < DTYPES; d++)
		for (unsigned s = 0; s < 3; s++) {
			for (unsigned i = 0; i < 3 * 4000; i++)
				x[i] = unit();
			x[4000 + 2999] = some[s];
			run(args_of(dtypes[d], 3, 4000, EPS), "vectorised");
			for (int64_t i = 0; i < 3 * 4000; i++)
				assert_int_equal(isnan(half_load(out, dtypes[d], i)) != 0, i / 4000 == 1);
		}
}

static void without_elements_there_is_nothing_to_do(void **state)
{
	static const uint64_t shapes[][2] = {{0, 5}, {5, 0}, {0, 0}};
	char why[WHY_BYTES];

	(void)state;
	for (unsigned s = 0; s < 3; s++) {
		struct op_args args = args_of(KOPS_F32, shapes[s][0], shapes[s][1], EPS);
		args.views[LAYER_NORM_WEIGHT] = view_of(weight, KOPS_F32, 1, shapes[s][1], 1);
		assert_int_equal(op_check(&args, why), 0);
		assert_true(op_is_empty(&args));
		args.op->reference(&args);
	}
}

static void shapes_that_do_not_fit_are_refused(void **state)
{
	char why[WHY_BYTES];

	(void)state;
	struct op_args args = args_of(KOPS_F32, 3, 4, EPS);
	args.views[LAYER_NORM_WEIGHT] = view_of(weight, KOPS_F32, 1, 3, 1);
	assert_int_equal(op_check(&args, why), KOPS_E_SHAPE);
	assert_string_equal(why, "weight is 3 and x 3x4; weight has one axis, as long as x's last");
	args = args_of(KOPS_F32, 3, 4, EPS);
	args.views[LAYER_NORM_BIAS] = view_of(bias, KOPS_F32, 1, 4, 2);
	assert_int_equal(op_result(&args, why), KOPS_E_SHAPE);
	assert_string_equal(why, "bias is 1x4 and x 3x4; bias has one axis, as long as x's last");
	args = args_of(KOPS_F32, 3, 4, -1);
	assert_int_equal(op_check(&args, why), KOPS_E_INVALID);
	args = args_of(KOPS_F32, 3, 4, (double)NAN);
	assert_int_equal(op_check(&args, why), KOPS_E_INVALID);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(large_means_cost_no_accuracy),
	    cmocka_unit_test(rows_of_one_element_are_the_bias),
	    cmocka_unit_test(equal_elements_are_no_distance_apart),
	    cmocka_unit_test(numbers_at_the_ends_of_the_range),
	    cmocka_unit_test(many_short_rows_and_few_long_ones),
	    cmocka_unit_test(weight_and_bias_count_where_they_are),
	    cmocka_unit_test(what_is_no_number_stays_in_its_row),
	    cmocka_unit_test(without_elements_there_is_nothing_to_do),
	    cmocka_unit_test(shapes_that_do_not_fit_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
