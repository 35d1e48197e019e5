/* test_pairs.c: for which operands f16x3 takes pairs of f16. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "accuracy.h"
#include "emulated.h"
#include "f32_matrix.h"
#include "gemm/kernels.h"
#include "gemm/problem.h"

#define LINES      64 /* of A and of B, but where more are wanted */
#define LINES_MAX  300
#define REGION     256 /* lines that are judged together */
#define FLOATS_MAX (LINES * 2048)

/* Returns whether a product that ended in this workspace was made of pairs everywhere. */
bool emulated_pairs_fit(const void *workspace);

static float a[FLOATS_MAX], b[FLOATS_MAX], c[LINES_MAX * LINES_MAX];

/* Multiplies what a and b hold: lines along K in both. Returns whether it was by pairs everywhere. */
static bool multiply(uint64_t lines, uint64_t depth)
{
	struct op_args args = {.op = op_by_name("gemm")};
	uint64_t bytes;
	void *workspace;

	memset(c, 0xff, sizeof c);
	args.views[0] = f32_matrix(a, lines, depth, false);
	args.views[1] = f32_matrix(b, depth, lines, true);
	args.views[GEMM_C] = f32_matrix(c, lines, lines, false);
	args.params.gemm.alpha = 1;
	args.params.gemm.precision = KOPS_PRECISION_F32;
	bytes = gemm_f16x3_workspace(&args);
	workspace = aligned_alloc(256, (bytes + 255) / 256 * 256);
	assert_non_null(workspace);
	assert_int_equal(gemm_f16x3(&args, &(struct launch){.workspace = workspace, .workspace_bytes = bytes}),
	                 0);
	bool fit = emulated_pairs_fit(workspace);
	free(workspace);
	return fit;
}

static bool is_by_pairs(uint64_t depth)
{
	return multiply(LINES, depth);
}

static void fill_lines(const char *distribution, uint64_t lines, uint64_t depth)
{
	struct source source = {.seed = 5, .lines = {lines, lines}, .depth = depth};
	unsigned d = 0;

	while (strcmp(distribution_name(d), distribution) != 0)
		d++;
	distribution_fill(d, &source, OPERAND_A, a, true);
	distribution_fill(d, &source, OPERAND_B, b, true);
}

static void fill(const char *distribution, uint64_t depth)
{
	fill_lines(distribution, LINES, depth);
}

static void lines_with_outliers_are_pairs(void **state)
{
	static const char *const names[] = {"N(0,1)", "U[0,1)", "lines20", "outliers", "lognormal2"};

	(void)state;
	for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
		fill(names[i], 2048);
		if (!is_by_pairs(2048))
			fail_msg("%s is not multiplied by pairs", names[i]);
	}
}

/* The largest number comes to where f16 still holds it. */
static void the_largest_number_does_not_overflow(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 64; i++) {
		fill("U[-1,1)", 64);
		a[7 * 64 + 10] = 1.999f + (float)i * 0x1p-16f;
		b[5 * 64 + 3] = -nextafterf(2, 1);
		assert_true(is_by_pairs(64));
		for (unsigned j = 0; j < LINES * LINES; j++)
			assert_true(isfinite(c[j]));
	}
}

static void short_sums_do_not_rest_on_few_products(void **state)
{
	static const char *const names[] = {"N(0,1)", "U[0,1)", "U[-1,1)", "lines20"};

	(void)state;
	for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
		fill(names[i], 64);
		assert_true(is_by_pairs(64));
	}
	fill("lognormal2", 150);
	assert_false(is_by_pairs(150));
	fill("lognormal2", 160);
	assert_true(is_by_pairs(160));
}

static void lines_of_wide_range_are_not(void **state)
{
	static const char *const names[] = {"lognormal4", "spread20", "opposed12", "special"};

	(void)state;
	for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
		fill(names[i], 256);
		if (is_by_pairs(256))
			fail_msg("%s is multiplied by pairs", names[i]);
	}
}

/* Two numbers of a line may be lost wholly, in short sums not a third. */
static void losses_are_weighed(void **state)
{
	(void)state;
	fill("N(0,1)", 64);
	for (unsigned i = 0; i < 3; i++) {
		assert_true(is_by_pairs(64));
		a[7 * 64 + 10 + i] = 1e-30f;
	}
	assert_false(is_by_pairs(64));
}

/* What is lost might be all that a line that is nearly all zeros meets. */
static void losses_do_not_meet_zeros(void **state)
{
	(void)state;
	fill("N(0,1)", 64);
	a[7 * 64 + 10] = 1e-30f;
	memset(b + 3 * 64, 0, 60 * sizeof *b);
	assert_false(is_by_pairs(64));
}

static double exact(uint64_t row, uint64_t col, uint64_t depth)
{
	double sum = 0;

	for (uint64_t k = 0; k < depth; k++)
		sum += (double)a[row * depth + k] * b[col * depth + k];
	return sum;
}

static void unfit_lines_change_their_regions_only(void **state)
{
	static float before[LINES_MAX * LINES_MAX];
	const uint64_t lines = LINES_MAX, depth = 64, bad_row = 260, bad_col = 299;

	(void)state;
	fill_lines("N(0,1)", lines, depth);
	assert_true(multiply(lines, depth));
	memcpy(before, c, sizeof c);
	a[bad_row * depth + 5] = INFINITY;
	for (unsigned k = 0; k < 8; k++)
		b[bad_col * depth + k] *= 1e-20f;
	assert_false(multiply(lines, depth));
	for (uint64_t row = 0; row < lines; row++)
		for (uint64_t col = 0; col < lines; col++) {
			uint64_t i = row * lines + col;
			if (row == bad_row)
				assert_true(isinf(c[i]));
			else if (row < REGION && col < REGION)
				assert_memory_equal(&c[i], &before[i], sizeof *c);
			else
				assert_true(fabs(c[i] - exact(row, col, depth)) <= 1e-6 * fmax(1, fabs(c[i])));
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(lines_with_outliers_are_pairs),
	    cmocka_unit_test(the_largest_number_does_not_overflow),
	    cmocka_unit_test(short_sums_do_not_rest_on_few_products),
	    cmocka_unit_test(lines_of_wide_range_are_not),
	    cmocka_unit_test(losses_are_weighed),
	    cmocka_unit_test(losses_do_not_meet_zeros),
	    cmocka_unit_test(unfit_lines_change_their_regions_only),
	};

	emulated_gpu(2, 1, "f16x3 on given operands");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
