/* test_refine.c: search of f32 by tf32 products is exact, also where it has to leave queries to `lanes`. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check.h"
#include "emulated.h"
#include "search/refine.h"

enum { QUERIES_MAX = 70, ROWS = 1200, COLUMNS = 36, K = 5 };

int search_refine(const struct op_args *args, const struct launch *launch);

static float queries[QUERIES_MAX * COLUMNS], base[ROWS * COLUMNS], values[QUERIES_MAX * K];
static int32_t indices[QUERIES_MAX * K];

static void fill(void)
{
	struct random r = {.state = 3};

	for (unsigned i = 0; i < QUERIES_MAX * COLUMNS; i++)
		queries[i] = (float)random_unit(&r);
	for (unsigned i = 0; i < ROWS * COLUMNS; i++)
		base[i] = (float)random_unit(&r);
}

static struct view matrix(void *data, kops_dtype dtype, uint64_t rows, uint64_t columns)
{
	return (struct view){.space = data,
	                     .data = data,
	                     .dtype = dtype,
	                     .rank = 2,
	                     .shape = {rows, columns},
	                     .strides = {(int64_t)columns, 1}};
}

/* Compares the scores that are at places with what they should be, in f64. */
static void check_values(const struct op_args *args, uint64_t n)
{
	for (uint64_t query = 0; query < n; query++)
		for (unsigned i = 0; i < K; i++) {
			float value = values[query * K + i];
			int32_t index = indices[query * K + i];

			if (index < 0)
				continue;
			struct search_score score = search_score(args, query, (uint64_t)index);

			if (score.bound >= 0 && value != score.value &&
			    !(fabs(value - score.value) <= score.bound))
				fail_msg("query %u: row %d has %g instead of %g", (unsigned)query, index,
				         (double)value, score.value);
		}
}

/* Compares indices with those of the reference. Returns how many queries were left to `lanes`. */
static unsigned search(enum search_metric metric, uint64_t n)
{
	static float expected_values[QUERIES_MAX * K];
	static int32_t expected[QUERIES_MAX * K];
	struct op_args args = {.op = op_by_name("search")};
	char why[WHY_BYTES];
	const char *why_not = "";

	op_set_defaults(&args);
	args.views[SEARCH_QUERIES] = matrix(queries, KOPS_F32, n, COLUMNS);
	args.views[SEARCH_BASE] = matrix(base, KOPS_F32, ROWS, COLUMNS);
	args.views[SEARCH_VALUES] = matrix(values, KOPS_F32, n, K);
	args.views[SEARCH_INDICES] = matrix(indices, KOPS_I32, n, K);
	args.params.plain.counts[SEARCH_K] = K;
	args.params.plain.counts[SEARCH_METRIC] = metric;
	if (args.op->check(&args, why) != 0)
		fail_msg("%s", why);
	if (!search_refine_supports(&args, &why_not))
		fail_msg("it %s", why_not);
	args.views[SEARCH_VALUES].data = expected_values;
	args.views[SEARCH_INDICES].data = expected;
	args.op->reference(&args);
	args.views[SEARCH_VALUES].data = values;
	args.views[SEARCH_INDICES].data = indices;
	memset(values, 0xff, sizeof values);
	memset(indices, 0xff, sizeof indices);

	uint64_t bytes = search_refine_workspace(&args);
	unsigned *workspace = aligned_alloc(256, (bytes + 255) / 256 * 256), left = 0;

	assert_non_null(workspace);
	memset(workspace, 0xff, bytes);
	assert_int_equal(
	    search_refine(&args, &(struct launch){.workspace = workspace, .workspace_bytes = bytes}), 0);
	for (uint64_t i = 0; i < n; i++)
		left += workspace[1 + i] != 0;
	free(workspace);
	for (uint64_t i = 0; i < n * K; i++)
		if (indices[i] != expected[i])
			fail_msg("place %u of query %u is row %d instead of %d", (unsigned)(i % K),
			         (unsigned)(i / K), indices[i], expected[i]);
	check_values(&args, n);
	return left;
}

static void random_rows_need_no_help(void **state)
{
	static const uint64_t n[] = {1, 8, 9, 64, 70};

	(void)state;
	fill();
	for (int metric = SEARCH_IP; metric <= SEARCH_COSINE; metric++)
		for (unsigned i = 0; i < sizeof n / sizeof n[0]; i++)
			assert_int_equal(search((enum search_metric)metric, n[i]), 0);
}

/* What tf32 does not tell apart. */
static void near_rows_are_told_apart(void **state)
{
	(void)state;
	fill();
	for (unsigned row = 0; row < ROWS; row += 100) /* 12 that are nearly alike */
		for (unsigned c = 0; c < COLUMNS; c++)
			base[row * COLUMNS + c] = 2 * queries[c] * (1 + (float)(row * 7 % 1100) * 0x1p-23f);
	for (int metric = SEARCH_IP; metric <= SEARCH_L2; metric++)
		assert_int_equal(search((enum search_metric)metric, 1), 0);
}

static void rows_that_are_all_alike_are_left_to_lanes(void **state)
{
	(void)state;
	fill();
	for (unsigned i = 0; i < ROWS * COLUMNS; i++)
		base[i] = base[i % COLUMNS];
	for (int metric = SEARCH_IP; metric <= SEARCH_COSINE; metric++)
		assert_int_equal(search((enum search_metric)metric, 9), 9);
}

/* A long row makes all doubtful that might be off by as much. */
static void long_rows_and_infinite_ones_are_no_trap(void **state)
{
	(void)state;
	fill();
	for (unsigned c = 0; c < COLUMNS; c++)
		base[700 * COLUMNS + c] *= 1e6f;
	for (int metric = SEARCH_IP; metric <= SEARCH_COSINE; metric++)
		search((enum search_metric)metric, 9);
	base[700 * COLUMNS] = INFINITY;
	base[20 * COLUMNS] = NAN;
	for (int metric = SEARCH_IP; metric <= SEARCH_COSINE; metric++)
		search((enum search_metric)metric, 9);
}

static void tiny_numbers_are_not_lost(void **state)
{
	(void)state;
	fill();
	for (unsigned i = 0; i < ROWS * COLUMNS; i++)
		base[i] *= 0x1p-90f;
	for (unsigned i = 0; i < QUERIES_MAX * COLUMNS; i++)
		queries[i] *= 0x1p60f;
	search(SEARCH_IP, 9);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(random_rows_need_no_help),
	    cmocka_unit_test(near_rows_are_told_apart),
	    cmocka_unit_test(rows_that_are_all_alike_are_left_to_lanes),
	    cmocka_unit_test(long_rows_and_infinite_ones_are_no_trap),
	    cmocka_unit_test(tiny_numbers_are_not_lost),
	};

	emulated_gpu(2, 1, "refine of search on given operands");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
