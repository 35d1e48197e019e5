/*
 * Compares the vectorised softmax with the reference where random problems rarely go: rows of -Inf, ends of the
 * range, long rows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <math.h>

#include <cmocka.h>

#include "common/cpu.h"
#include "common/half.h"
#include "common/threads.h"
#include "softmax/operands.h"

#ifdef KOPS_SANITIZE
#define LONGEST 50001
#else
#define LONGEST 300001
#endif

static float x[LONGEST]; /* the row, and the same in the dtype of the run */
static float in[LONGEST], got[LONGEST], want[LONGEST];
static const kops_dtype dtypes[] = {KOPS_F32, KOPS_F16, KOPS_BF16};
static const int64_t lengths[] = {1, 7, 100, 8192, 8193, 20000, LONGEST};

static struct op_args row_of(kops_dtype dtype, int64_t n, double scale, bool log, float *y)
{
	struct op_args args = {.op = op_by_name("softmax"), .params.softmax = {.scale = scale, .log = log}};

	args.views[0] =
	    (struct view){.space = in, .data = in, .dtype = dtype, .rank = 1, .shape = {(uint64_t)n}};
	args.views[0].strides[0] = 1;
	args.views[SOFTMAX_Y] = args.views[SOFTMAX_X];
	args.views[SOFTMAX_Y].space = args.views[SOFTMAX_Y].data = y;
	return args;
}

static void run(kops_dtype dtype, int64_t n, double scale, bool log)
{
	struct op_args args = row_of(dtype, n, scale, log, got), reference = row_of(dtype, n, scale, log, want);
	const struct launch launch = {0};
	char why[WHY_BYTES];

	for (int64_t i = 0; i < n; i++)
		half_store(in, dtype, i, (double)x[i]);
	assert_int_equal(op_check(&args, why), 0);
	assert_int_equal(op_check(&reference, why), 0);
	assert_int_equal(softmax_cpu_kernels.kernels[0].launch(&args, &launch), 0);
	reference.op->reference(&reference);
}

/* A result of a 16-bit type may be a neighbour of the reference's. */
static double bound_of(kops_dtype dtype, double exact, bool log)
{
	double relative = dtype == KOPS_F16 ? 0x1p-10 : dtype == KOPS_BF16 ? 0x1p-7 : 0;

	return (dtype == KOPS_F16 ? 0x1p-24 : 1e-36) + (1e-5 + relative) * fabs(exact) + (log ? 1e-5 : 0);
}

static void compare_one(kops_dtype dtype, int64_t n, double scale, bool log, int64_t i, unsigned threads)
{
	double g = half_load(got, dtype, i), w = half_load(want, dtype, i);

	if (isnan(w) ? isnan(g) : g == w)
		return;
	if (isfinite(w) && fabs(g - w) <= bound_of(dtype, w, log))
		return;
	fail_msg("%s row of %lld, scale %g, log %d, %u threads: element %lld is %.9g, should be %.9g",
	         dtype_name(dtype), (long long)n, scale, log, threads, (long long)i, g, w);
}

/* Compares on one thread and on three, which split long rows. 20000 elements suffice for the small types. */
static void compare(int64_t n, double scale, bool log)
{
	for (unsigned threads = 1; threads <= 3; threads += 2) {
		threads_set(threads);
		for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++) {
			if (dtypes[d] != KOPS_F32 && n == LONGEST)
				continue;
			run(dtypes[d], n, scale, log);
			for (int64_t i = 0; i < n; i++)
				compare_one(dtypes[d], n, scale, log, i, threads);
		}
	}
	threads_stop();
}

static void fill(float value)
{
	for (int64_t i = 0; i < LONGEST; i++)
		x[i] = value;
}

static void compare_lengths(double scale)
{
	for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
		compare(lengths[i], scale, false);
		compare(lengths[i], scale, true);
	}
}

static void compare_all(void)
{
	static const double scales[] = {1, -1, 0.25, -0.001, 0, 3};

	for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++)
		compare_lengths(scales[i]);
}

static void rows_of_one_value(void **state)
{
	(void)state;
	fill(2.5f);
	compare_all();
	fill(-INFINITY);
	compare_all();
	fill(INFINITY);
	compare_all();
	fill(NAN);
	compare_all();
}

/* Whole pieces of -Inf lie beside others; with scale < 0, of +Inf. */
static void infinite_pieces(void **state)
{
	(void)state;
	for (int sign = -1; sign <= 1; sign += 2) {
		fill((float)sign * INFINITY);
		x[0] = 1;
		compare_all();
		x[0] = (float)sign * INFINITY;
		x[5] = -3;
		x[19000] = 2;
		compare_all();
		x[9000] = NAN; /* alone in its piece */
		compare_all();
	}
}

static void one_special_value_in_a_row(void **state)
{
	static const float values[] = {NAN, INFINITY, -INFINITY, 1e-45f, -1e-39f, 3.4e38f, -3.4e38f};

	(void)state;
	for (size_t v = 0; v < sizeof values / sizeof values[0]; v++)
		for (int64_t at = 0; at < LONGEST; at += LONGEST / 2) {
			for (int64_t i = 0; i < LONGEST; i++)
				x[i] = (float)(i % 17) / 8;
			x[at] = values[v];
			compare_lengths(1);
			compare_lengths(-0.5);
		}
}

/* x - max exceeds the range, but scale * (x - max) does not. */
static void ends_of_the_range(void **state)
{
	(void)state;
	for (int64_t i = 0; i < LONGEST; i++)
		x[i] = i % 3 ? 3.3e38f : -3.3e38f;
	compare_lengths(0.25);
	compare_lengths(-0.25);
	compare_lengths(1e-38);
	compare_lengths(2);
}

/* The sum of a long row of equal values must be more exact than in f32. */
static void long_sums_stay_exact(void **state)
{
	(void)state;
	fill(1);
	threads_set(1);
	run(KOPS_F32, LONGEST, 1, false);
	for (int64_t i = 0; i < LONGEST; i++)
		assert_true(fabs((double)got[i] * LONGEST - 1) < 2e-7);
}

/* Of kernel k, with a mask that is repeated along rows or along columns. */
static void run_masked(struct op_args args, unsigned k, const float *mask, int64_t row_step,
                       int64_t column_step)
{
	const struct kernel *kernel = &softmax_cpu_kernels.kernels[k];
	static char workspace[1 << 20];
	const struct launch launch = {.workspace = workspace};
	char why[WHY_BYTES];

	args.views[SOFTMAX_MASK] = args.views[SOFTMAX_X];
	args.views[SOFTMAX_MASK].space = args.views[SOFTMAX_MASK].data = (void *)(uintptr_t)mask;
	args.views[SOFTMAX_MASK].strides[0] = row_step;
	args.views[SOFTMAX_MASK].strides[1] = column_step;
	assert_int_equal(op_check(&args, why), 0);
	assert_true(!kernel->workspace || kernel->workspace(&args) <= sizeof workspace);
	assert_int_equal(kernel->launch(&args, &launch), 0);
}

/* Rows of which everything is masked are 0, or -Inf; a NaN among them stays. Short rows, long ones and shared
 * ones. */
static void rows_that_are_masked_are_zeros(void **state)
{
	static const int64_t columns[] = {5, 9000, 16600}; /* three rows fit */
	static float mask[LONGEST];

	(void)state;
	for (unsigned c = 0; c < 3; c++)
		for (unsigned log = 0; log < 2; log++)
			for (unsigned k = 0; k < 2; k++) {
				int64_t n = columns[c];
				struct op_args args = row_of(KOPS_F32, 3, 0.5, log, got);
				for (unsigned v = SOFTMAX_X; v <= SOFTMAX_Y; v += SOFTMAX_Y - SOFTMAX_X) {
					args.views[v].rank = 2;
					args.views[v].shape[1] = (uint64_t)n;
					view_make_dense(&args.views[v]);
				}
				for (int64_t i = 0; i < 3 * n; i++) {
					in[i] = (float)(i % 7);
					mask[i] = i < n || i % 2 ? -INFINITY : 0;
				}
				in[2 * n + 1] = NAN;
				run_masked(args, k, mask, n, 1);
				for (int64_t i = 0; i < 3 * n; i++) {
					if (i >= 2 * n)
						assert_true(isnan(got[i]));
					else if (mask[i] < 0)
						assert_true(log ? got[i] == -INFINITY : got[i] == 0);
					else
						assert_true(isfinite(got[i]) && (log || got[i] > 0));
				}
				in[2 * n + 1] = 1;
				run_masked(args, k, mask, 1, 0); /* the first rows of all */
				for (int64_t i = 0; i < 3 * n; i++)
					assert_true(log ? got[i] == -INFINITY : got[i] == 0);
			}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(rows_that_are_masked_are_zeros),
	    cmocka_unit_test(rows_of_one_value),
	    cmocka_unit_test(infinite_pieces),
	    cmocka_unit_test(one_special_value_in_a_row),
	    cmocka_unit_test(ends_of_the_range),
	    cmocka_unit_test(long_sums_stay_exact),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
