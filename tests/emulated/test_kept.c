/* test_kept.c: what f16x3 keeps for the parts of a product that grows changes no bit of it. */
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
#include "gemm/gemm.h"
#include "gemm/kernels.h"

#define M     520
#define N     300
#define K     128
#define CHUNK 256

static float a[M * K], b[K * N], c[M * N];

static const struct kernel f16x3 = {.name = "f16x3", .kept_bytes = gemm_f16x3_kept_bytes, .launch = gemm_f16x3};

/* C is turned: then f16x3 exchanges A and B. */
static struct op_args product(bool turned)
{
	struct op_args args = {.op = op_by_name("gemm")};

	args.views[GEMM_A] = f32_matrix(a, M, K, turned);
	args.views[GEMM_B] = f32_matrix(b, K, N, false);
	args.views[GEMM_C] = f32_matrix(c, M, N, turned);
	args.params.gemm.alpha = 1;
	args.params.gemm.precision = KOPS_PRECISION_F32;
	return args;
}

/* Three chunks of rows and two of columns; steps: of K, for the first tile. */
static struct op_cut cut_of(uint32_t steps)
{
	struct op_cut cut = {.n_parts = 4, .n_steps = 1, .grows = true};

	for (unsigned axis = 1; axis <= 2; axis++) {
		cut.axes[axis].n = axis == 1 ? 3 : 2;
		cut.axes[axis].chunk = CHUNK;
	}
	if (steps > 1) {
		cut.first_parts = steps;
		cut.step_chunk = K / steps;
		cut.n_parts += steps - 1;
	}
	return cut;
}

static void *aligned(uint64_t bytes)
{
	void *memory = aligned_alloc(256, (bytes + 255) / 256 * 256);

	assert_non_null(memory);
	memset(memory, 0xff, bytes); /* NaN */
	return memory;
}

/* Returns the product, which is the caller's to free. */
static float *multiply(bool turned, uint32_t steps, bool keeps)
{
	struct op_args args = product(turned);
	struct op_cut cut = cut_of(steps);
	uint64_t bytes = gemm_f16x3_workspace(&args), kept = kernel_kept_bytes(&f16x3, &args, &cut);
	struct launch launch = {.workspace = aligned(bytes), .workspace_bytes = bytes};
	float *result = malloc(sizeof c);

	assert_non_null(result);
	assert_true(kept > 4 * (M + N) * K);
	memset(c, 0, sizeof c);
	launch.kept.memory = keeps ? aligned(kept) : NULL;
	for (uint32_t i = 0; i < cut.n_parts; i++) {
		assert_int_equal(kernel_launch_part(&f16x3, &args, &cut, i, &launch, NULL), 0);
		memset(launch.workspace, 0xff, bytes); /* other runs have it between two slices */
	}
	memcpy(result, c, sizeof c);
	free(launch.workspace);
	free(launch.kept.memory);
	return result;
}

static void expect_same(bool turned, uint32_t steps)
{
	float *anew = multiply(turned, steps, false), *kept = multiply(turned, steps, true);

	assert_memory_equal(anew, kept, sizeof c);
	free(anew);
	free(kept);
}

static void fill_lines(void)
{
	struct source source = {.seed = 5, .lines = {M, N}, .depth = K};
	unsigned d = 0;

	while (strcmp(distribution_name(d), "N(0,1)") != 0)
		d++;
	distribution_fill(d, &source, OPERAND_A, a, true);
	distribution_fill(d, &source, OPERAND_B, b, true);
}

static void parts_find_what_was_kept(void **state)
{
	(void)state;
	fill_lines();
	for (unsigned turned = 0; turned < 2; turned++) {
		expect_same(turned, 1);
		expect_same(turned, 2);
	}
}

/* Regions of some parts go to f64, and others must not. */
static void parts_know_which_lines_are_unfit(void **state)
{
	(void)state;
	fill_lines();
	a[300 * K + 7] = INFINITY;
	for (unsigned k = 0; k < K / 2; k++)
		b[k * N + 290] *= 1e-20f;
	expect_same(false, 2);
	expect_same(true, 1);
}

/* Lines of parts begin within regions, or there are several products. */
static void other_cuts_keep_nothing(void **state)
{
	struct op_args args = product(false);
	struct op_cut cut = cut_of(1);

	(void)state;
	cut.axes[1].chunk = 240;
	assert_int_equal(kernel_kept_bytes(&f16x3, &args, &cut), 0);
	cut = cut_of(1);
	cut.axes[2].first = 128;
	assert_int_equal(kernel_kept_bytes(&f16x3, &args, &cut), 0);
	cut = cut_of(1);
	cut.grows = false;
	assert_int_equal(kernel_kept_bytes(&f16x3, &args, &cut), 0);
	cut.grows = true;
	args.views[GEMM_C].shape[0] = 2;
	assert_int_equal(kernel_kept_bytes(&f16x3, &args, &cut), 0);
}

/* Only what is fresh is cut up. */
static void estimates_know_what_is_kept(void **state)
{
	struct op_args args = product(false), part, fresh;
	struct op_cut cut = cut_of(1);

	(void)state;
	for (uint32_t i = 0; i < cut.n_parts; i++) {
		op_part(&args, &cut, i, &part);
		assert_true(op_part_fresh(&args, &cut, i, &fresh));
		double kept_ns = gemm_f16x3_kept_ns(&part, &part, &fresh), ns = gemm_f16x3_ns(&part);

		assert_true(i == 0 ? kept_ns == ns : kept_ns < ns);
		assert_true(kept_ns <= gemm_f16x3_kept_ns(&args, &part, &fresh));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(parts_find_what_was_kept),
	    cmocka_unit_test(parts_know_which_lines_are_unfit),
	    cmocka_unit_test(other_cuts_keep_nothing),
	    cmocka_unit_test(estimates_know_what_is_kept),
	};

	emulated_gpu(4, 1, "f16x3 in parts");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
