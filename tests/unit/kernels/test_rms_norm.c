/*
 * Tests rms_norm on the CPU where random problems rarely go, and residuals of both it and layer_norm: the
 * result is that of an addition and a norm apart, bit for bit, in place too.
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
#include "common/rules.h"
#include "common/threads.h"
#include "layer_norm/layer_norm.h"

#define ELEMENTS_MAX 50000
#define EPS          1e-5

static double x[ELEMENTS_MAX], residual[ELEMENTS_MAX]; /* rows */
static double in[ELEMENTS_MAX], added[ELEMENTS_MAX], out[ELEMENTS_MAX], sum[ELEMENTS_MAX],
    vectors[2][ELEMENTS_MAX];
static double want[ELEMENTS_MAX], want_sum[ELEMENTS_MAX];
static char workspace[1 << 16], why[WHY_BYTES];
static const kops_dtype dtypes[] = {KOPS_F32, KOPS_F64, KOPS_F16, KOPS_BF16};
static const char *const kernels[] = {"vectorised", "reference"};
#define DTYPES 4

static struct view view_of(void *data, kops_dtype dtype, uint64_t rows, uint64_t cols)
{
	struct view v = {.space = data, .data = data, .dtype = dtype, .rank = 2, .shape = {rows, cols}};

	view_make_dense(&v);
	return v;
}

static struct view vector_of(void *data, kops_dtype dtype, uint64_t cols)
{
	return (struct view){
	    .space = data, .data = data, .dtype = dtype, .rank = 1, .shape = {cols}, .strides = {1}};
}

static void store(void *to, kops_dtype dtype, const double *from, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		half_store(to, dtype, (int64_t)i, from[i]);
}

static struct op_args args_of(const struct op *op, kops_dtype dtype, uint64_t rows, uint64_t cols)
{
	struct op_args args = {.op = op};

	op_set_defaults(&args);
	args.views[LAYER_NORM_X] = view_of(in, dtype, rows, cols);
	args.views[LAYER_NORM_Y] = view_of(out, dtype, rows, cols);
	store(in, dtype, x, rows * cols);
	return args;
}

static void run(struct op_args args, const struct kernel_list *list, const char *kernel)
{
	const struct kernel *k = list->kernels;

	if (op_check(&args, why) < 0)
		fail_msg("%s", why);
	while (strcmp(k->name, kernel) != 0)
		k++;
	struct launch launch = {.workspace = workspace,
	                        .workspace_bytes = k->workspace ? k->workspace(&args) : 0};
	assert_true(launch.workspace_bytes <= sizeof workspace);
	assert_int_equal(k->launch(&args, &launch), 0);
}

static double unit(void)
{
	return 2.0 * rand() / RAND_MAX - 1;
}

static void fill_rows(double scale)
{
	for (unsigned i = 0; i < ELEMENTS_MAX; i++) {
		x[i] = scale * unit();
		residual[i] = scale * unit();
	}
}

static double roundoff(kops_dtype dtype)
{
	return dtype == KOPS_F64 ? 0x1p-53 : dtype == KOPS_F32 ? 0x1p-24 : dtype == KOPS_F16 ? 0x1p-11 : 0x1p-8;
}

/* Compares all of `out` with x / sqrt(mean of squares + eps), by both kernels. */
static void compare(kops_dtype dtype, uint64_t rows, uint64_t cols, double eps)
{
	for (unsigned k = 0; k < 2; k++) {
		struct op_args args = args_of(&op_rms_norm, dtype, rows, cols);
		args.params.plain.numbers[LAYER_NORM_EPS] = eps;
		run(args, &rms_norm_cpu_kernels, kernels[k]);
		for (uint64_t i = 0; i < rows; i++) {
			long double squares = 0;
			for (uint64_t j = 0; j < cols; j++) {
				long double v = (long double)half_load(in, dtype, (int64_t)(i * cols + j));
				squares += v * v / (long double)cols;
			}
			for (uint64_t j = 0; j < cols; j++) {
				int64_t at = (int64_t)(i * cols + j);
				double exact = (double)((long double)half_load(in, dtype, at) /
				                        sqrtl(squares + (long double)eps));
				double got = half_load(out, dtype, at);
				if (!(fabs(got - exact) <= 32 * roundoff(dtype) * (fabs(exact) + 1e-3)))
					fail_msg("%s of %s: %.17g, should be %.17g", kernels[k],
					         dtype_name(dtype), got, exact);
			}
		}
	}
}

static void rows_of_any_length(void **state)
{
	static const uint64_t shapes[][2] = {{999, 1},   {700, 7},   {300, 32}, {300, 33},
	                                     {20, 2048}, {20, 2049}, {1, 50000}};

	(void)state;
	threads_set(3);
	fill_rows(1);
	for (unsigned s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
		for (unsigned d = 0; d < DTYPES; d++)
			compare(dtypes[d], shapes[s][0], shapes[s][1], EPS);
	threads_stop();
	threads_set(1);
}

/* Squares exceed the range of f32, or vanish in it. */
static void numbers_at_the_ends_of_the_range(void **state)
{
	static const double ends[] = {3.3e38, 1e150, 65504, 3.3e38}, small[] = {1e-38, 1e-150, 1e-6, 1e-38};

	(void)state;
	for (unsigned d = 0; d < DTYPES; d++) {
		fill_rows(ends[d]);
		compare(dtypes[d], 4, 4999, EPS);
		compare(dtypes[d], 999, 20, 0);
		fill_rows(small[d]);
		compare(dtypes[d], 4, 4999, 0);
	}
}

static void what_is_no_number_stays_in_its_row(void **state)
{
	static const uint64_t lengths[] = {20, 400, 2999}; /* in lanes, in one piece, in two */

	(void)state;
	fill_rows(1);
	for (unsigned d = 0; d < DTYPES; d++)
		for (unsigned l = 0; l < 3; l++)
			for (unsigned k = 0; k < 2; k++) {
				int64_t n = (int64_t)lengths[l];
				struct op_args args = args_of(&op_rms_norm, dtypes[d], 4, lengths[l]);
				half_store(in, dtypes[d], n + 3, (double)NAN);
				half_store(in, dtypes[d], 2 * n + 3, (double)-INFINITY);
				run(args, &rms_norm_cpu_kernels, kernels[k]);
				for (int64_t i = 0; i < 4 * n; i++) {
					double y = half_load(out, dtypes[d], i);
					if (i / n == 1 || i == 2 * n + 3)
						assert_true(isnan(y));
					else if (i / n == 2)
						assert_true(y == 0);
					else
						assert_true(isfinite(y) && y != 0);
				}
			}
}

/* 0 / 0 without eps. */
static void rows_of_zeros_are_the_bias(void **state)
{
	const double half = 0.5;

	(void)state;
	memset(x, 0, sizeof x);
	for (unsigned d = 0; d < DTYPES; d++)
		for (unsigned is_zero = 0; is_zero < 2; is_zero++) {
			struct op_args args = args_of(&op_rms_norm, dtypes[d], 3, 1);
			args.params.plain.numbers[LAYER_NORM_EPS] = is_zero ? 0 : EPS;
			args.views[LAYER_NORM_BIAS] = vector_of(vectors[0], dtypes[d], 1);
			store(vectors[0], dtypes[d], &half, 1);
			run(args, &rms_norm_cpu_kernels, "vectorised");
			for (int64_t i = 0; i < 3; i++) {
				double y = half_load(out, dtypes[d], i);
				assert_true(is_zero ? isnan(y) : y == 0.5);
			}
		}
}

/* ---- Residuals ---- */

/* Computes x + residual, then its norm, into want_sum and want. */
static void run_apart(const struct op *op, const struct kernel_list *list, const char *kernel, kops_dtype dtype,
                      uint64_t rows, uint64_t cols)
{
	struct op_args args = args_of(op, dtype, rows, cols);

	for (unsigned v = 0; v < 2; v++)
		args.views[LAYER_NORM_WEIGHT + v] = vector_of(vectors[v], dtype, cols);
	for (int64_t i = 0; i < (int64_t)(rows * cols); i++)
		half_store(want_sum, dtype, i, half_load(in, dtype, i) + half_load(added, dtype, i));
	args.views[LAYER_NORM_X] = view_of(want_sum, dtype, rows, cols);
	args.views[LAYER_NORM_Y] = view_of(want, dtype, rows, cols);
	run(args, list, kernel);
}

/* place: of y and of sum: 0: elsewhere, 1: y on x and sum on residual, 2: y on residual and sum on x, 3: no
 * sum. */
static void run_fused(const struct op *op, const struct kernel_list *list, const char *kernel, kops_dtype dtype,
                      uint64_t rows, uint64_t cols, unsigned place)
{
	struct op_args args = args_of(op, dtype, rows, cols);
	void *const y_at[] = {out, in, added, out}, *const sum_at[] = {sum, added, in, sum};
	size_t bytes = rows * cols * dtype_size(dtype);

	store(added, dtype, residual, rows * cols);
	for (unsigned v = 0; v < 2; v++)
		args.views[LAYER_NORM_WEIGHT + v] = vector_of(vectors[v], dtype, cols);
	args.views[LAYER_NORM_RESIDUAL] = view_of(added, dtype, rows, cols);
	args.views[LAYER_NORM_Y] = view_of(y_at[place], dtype, rows, cols);
	if (place < 3)
		args.views[LAYER_NORM_SUM] = view_of(sum_at[place], dtype, rows, cols);
	run(args, list, kernel);
	assert_memory_equal(y_at[place], want, bytes);
	if (place < 3)
		assert_memory_equal(sum_at[place], want_sum, bytes);
}

static void residuals_are_added_as_by_an_op_of_its_own(void **state)
{
	static const uint64_t shapes[][2] = {{9, 20}, {3, 1291}, {2, 5000}, {1, 40003}};
	static const struct op *const norms[] = {&op_layer_norm, &op_rms_norm};
	const struct kernel_list *lists[] = {&layer_norm_cpu_kernels, &rms_norm_cpu_kernels};

	(void)state;
	fill_rows(1);
	for (unsigned i = 0; i < 8 * DTYPES; i++) {
		kops_dtype dtype = dtypes[i % DTYPES];
		unsigned norm = i / DTYPES % 2, s = i / DTYPES / 2;
		uint64_t rows = shapes[s][0], cols = shapes[s][1];

		for (unsigned v = 0; v < 2; v++)
			store(vectors[v], dtype, residual + 1000 * v, cols);
		for (unsigned k = 0; k < 2; k++)
			for (unsigned place = 0; place < 4; place++) {
				store(added, dtype, residual, rows * cols);
				/* Lanes sum in another order; with a residual there are none. */
				run_apart(norms[norm], lists[norm], cols <= 32 ? "reference" : kernels[k],
				          dtype, rows, cols);
				if (cols > 32 || k == 1)
					run_fused(norms[norm], lists[norm], kernels[k], dtype, rows, cols,
					          place);
			}
	}
}

/* With f16 a row's sum is infinite, and with f32 its squares leave the range: it is done again in f64. */
static void residuals_of_large_numbers(void **state)
{
	(void)state;
	for (unsigned d = 0; d < DTYPES; d++) {
		fill_rows(dtypes[d] == KOPS_F16 ? 65504 : 1e38);
		for (unsigned v = 0; v < 2; v++)
			store(vectors[v], dtypes[d], x, 1000);
		store(added, dtypes[d], residual, 3000);
		run_apart(&op_rms_norm, &rms_norm_cpu_kernels, "vectorised", dtypes[d], 3, 1000);
		for (unsigned place = 0; place < 4; place++)
			run_fused(&op_rms_norm, &rms_norm_cpu_kernels, "vectorised", dtypes[d], 3, 1000, place);
	}
}

/* A row for all of x, as a vector and as a matrix of one row. */
static void a_residual_is_repeated(void **state)
{
	const uint64_t rows = 4, cols = 333;

	(void)state;
	fill_rows(1);
	for (unsigned i = 0; i < 4 * DTYPES; i++) {
		kops_dtype dtype = dtypes[i % DTYPES];
		struct op_args args = args_of(&op_layer_norm, dtype, rows, cols), whole = args;
		const char *kernel = kernels[i / DTYPES % 2];

		for (uint64_t row = 0; row < rows; row++)
			store((char *)added + row * cols * dtype_size(dtype), dtype, residual, cols);
		whole.views[LAYER_NORM_RESIDUAL] = view_of(added, dtype, rows, cols);
		whole.views[LAYER_NORM_Y] = view_of(want, dtype, rows, cols);
		run(whole, &layer_norm_cpu_kernels, kernel);
		args.views[LAYER_NORM_RESIDUAL] =
		    i / DTYPES / 2 ? view_of(added, dtype, 1, cols) : vector_of(added, dtype, cols);
		run(args, &layer_norm_cpu_kernels, kernel);
		assert_memory_equal(out, want, rows * cols * dtype_size(dtype));
	}
}

static void refused(struct op_args args, int code, const char *sentence)
{
	assert_int_equal(op_check(&args, why), code);
	assert_string_equal(why, sentence);
}

static void operands_that_do_not_fit_are_refused(void **state)
{
	struct op_args args = args_of(&op_rms_norm, KOPS_F32, 3, 4), other;

	(void)state;
	args.views[LAYER_NORM_SUM] = view_of(sum, KOPS_F32, 3, 4);
	refused(args, KOPS_E_INVALID, "sum is x + residual, and there is no residual; give both or neither");
	args.views[LAYER_NORM_RESIDUAL] = view_of(added, KOPS_F32, 3, 5);
	refused(args, KOPS_E_SHAPE,
	        "residual is 3x5, which does not repeat to x's 3x4: each extent, from the last, must be equal "
	        "or 1");
	args.views[LAYER_NORM_RESIDUAL] = vector_of(added, KOPS_F32, 4);
	other = args;
	other.views[LAYER_NORM_SUM] = view_of(added, KOPS_F32, 3, 4);
	refused(other, KOPS_E_OVERLAP,
	        "output sum overlaps input residual without being the same view; write to other memory");
	args.views[LAYER_NORM_RESIDUAL] = view_of(added, KOPS_F32, 3, 4);
	other = args;
	assert_int_equal(op_check(&other, why), 0);
	other = args;
	other.views[LAYER_NORM_SUM] = view_of(sum, KOPS_F32, 4, 3);
	refused(other, KOPS_E_SHAPE, "x is 3x4, sum is 4x3: the shapes must be equal");
	other.views[LAYER_NORM_SUM] = args.views[LAYER_NORM_Y];
	refused(other, KOPS_E_OVERLAP, "output sum overlaps output y; write to other memory");
	other.views[LAYER_NORM_SUM] = view_of(added, KOPS_F32, 3, 4);
	other.views[LAYER_NORM_SUM].offset = 4;
	refused(other, KOPS_E_OVERLAP,
	        "output sum overlaps input residual without being the same view; write to other memory");
	other = args;
	other.views[LAYER_NORM_WEIGHT] = vector_of(vectors[0], KOPS_F32, 3);
	refused(other, KOPS_E_SHAPE, "weight is 3 and x 3x4; weight has one axis, as long as x's last");
	other = args;
	other.views[LAYER_NORM_RESIDUAL].dtype = KOPS_F16;
	refused(other, KOPS_E_DTYPE, "x is f32, residual is f16: rms_norm wants one type for both");
}

static void a_sum_is_a_result_where_there_is_a_residual(void **state)
{
	struct op_args args = args_of(&op_layer_norm, KOPS_F16, 3, 4);

	(void)state;
	assert_int_equal(op_result(&args, why), 0);
	assert_true(view_is_absent(&args.views[LAYER_NORM_SUM]));
	args.views[LAYER_NORM_RESIDUAL] = view_of(added, KOPS_F16, 3, 4);
	assert_int_equal(op_result(&args, why), 0);
	assert_true(args.views[LAYER_NORM_SUM].dtype == KOPS_F16 && args.views[LAYER_NORM_SUM].shape[1] == 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(rows_of_any_length),
	    cmocka_unit_test(numbers_at_the_ends_of_the_range),
	    cmocka_unit_test(what_is_no_number_stays_in_its_row),
	    cmocka_unit_test(rows_of_zeros_are_the_bias),
	    cmocka_unit_test(residuals_are_added_as_by_an_op_of_its_own),
	    cmocka_unit_test(residuals_of_large_numbers),
	    cmocka_unit_test(a_residual_is_repeated),
	    cmocka_unit_test(operands_that_do_not_fit_are_refused),
	    cmocka_unit_test(a_sum_is_a_result_where_there_is_a_residual),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
