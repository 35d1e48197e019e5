/* test_attention_pairs.c: for which operands attention in f32 takes pairs of f16, and that others are right
 * too. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "attention/f16x3.h"
#include "attention/f16x3/found.h"
#include "check.h"
#include "emulated.h"

enum { QUERIES = 70, KEYS = 150, COLUMNS = 40 };

int attention_f16x3(const struct op_args *args, const struct launch *launch);

static float q[QUERIES * COLUMNS], k[KEYS * COLUMNS], v[KEYS * COLUMNS], o[QUERIES * COLUMNS];
static int32_t length;

static struct view matrix(float *data, uint64_t rows)
{
	return (struct view){.space = data,
	                     .data = data,
	                     .dtype = KOPS_F32,
	                     .rank = 4,
	                     .shape = {1, 1, rows, COLUMNS},
	                     .strides = {0, 0, COLUMNS, 1}};
}

static void fill(void)
{
	struct random r = {.state = 7};

	for (unsigned i = 0; i < QUERIES * COLUMNS; i++)
		q[i] = (float)random_unit(&r);
	for (unsigned i = 0; i < KEYS * COLUMNS; i++)
		k[i] = (float)random_unit(&r), v[i] = (float)random_unit(&r);
	length = KEYS;
}

/* Of the values that are finite. */
static float largest_of_column(unsigned column)
{
	float largest = 0;

	for (unsigned i = column; i < KEYS * COLUMNS; i += COLUMNS)
		if (isfinite(v[i]))
			largest = fmaxf(largest, fabsf(v[i]));
	return largest;
}

/* Compares with the reference. Returns whether pairs were taken. */
static bool attend(void)
{
	static float expected[QUERIES * COLUMNS];
	struct op_args args = {.op = op_by_name("attention")};
	char why[WHY_BYTES];
	struct split_found found;
	float largest, longest;

	op_set_defaults(&args);
	args.views[ATTENTION_Q] = matrix(q, QUERIES);
	args.views[ATTENTION_K] = matrix(k, KEYS);
	args.views[ATTENTION_V] = matrix(v, KEYS);
	args.views[ATTENTION_O] = matrix(o, QUERIES);
	args.views[ATTENTION_LENGTHS] = (struct view){
	    .space = &length, .data = &length, .dtype = KOPS_I32, .rank = 1, .shape = {1}, .strides = {1}};
	if (args.op->check(&args, why) != 0)
		fail_msg("%s", why);
	args.views[ATTENTION_O].data = expected;
	args.op->reference(&args);
	args.views[ATTENTION_O].data = o;
	memset(o, 0xff, sizeof o);

	uint64_t bytes = attention_f16x3_workspace(&args);
	void *workspace = aligned_alloc(256, bytes);

	assert_non_null(workspace);
	memset(workspace, 0xff, bytes);
	assert_int_equal(
	    attention_f16x3(&args, &(struct launch){.workspace = workspace, .workspace_bytes = bytes}), 0);
	memcpy(&found, workspace, sizeof found);
	free(workspace);
	for (unsigned i = 0; i < QUERIES * COLUMNS; i++)
		if (isnan(expected[i]) ? !isnan(o[i])
		                       : !(fabsf(o[i] - expected[i]) <= 1e-6f * largest_of_column(i % COLUMNS)))
			fail_msg("element %u is %g instead of %g", i, (double)o[i], (double)expected[i]);
	memcpy(&largest, &found.k_largest, sizeof largest);
	memcpy(&longest, &found.q_longest, sizeof longest);
	return found.unfit == 0 && largest * longest <= 0x1p19f;
}

static void ordinary_numbers_fit(void **state)
{
	(void)state;
	fill();
	assert_true(attend());
	for (unsigned i = 0; i < KEYS * COLUMNS; i++) {
		k[i] *= i % COLUMNS == 3 ? 1000 : 1; /* a channel of outliers */
		v[i] = expf(2 * v[i]);
	}
	for (unsigned i = 0; i < QUERIES * COLUMNS; i++)
		q[i] *= i % COLUMNS == 3 ? 0.01f : 1;
	assert_true(attend());
}

/* A column has a scale of its own, however small its numbers are. */
static void columns_of_any_size_fit(void **state)
{
	(void)state;
	fill();
	for (unsigned i = 0; i < KEYS; i++) {
		v[i * COLUMNS + 5] *= 1e-30f;
		v[i * COLUMNS + 6] *= 1e30f;
		v[i * COLUMNS + 7] = 0;
	}
	assert_true(attend());
}

static void keys_that_do_not_count_are_not_looked_at(void **state)
{
	(void)state;
	fill();
	length = 77;
	for (unsigned i = 77 * COLUMNS; i < KEYS * COLUMNS; i++)
		k[i] = NAN, v[i] = INFINITY;
	assert_true(attend());
}

static void numbers_that_are_not_finite_do_not_fit(void **state)
{
	(void)state;
	fill();
	v[100 * COLUMNS + 4] = NAN;
	assert_false(attend());
	fill();
	k[100 * COLUMNS + 4] = -INFINITY;
	assert_false(attend());
	fill();
	q[69 * COLUMNS + 39] = NAN;
	assert_false(attend());
}

/* A result might be all that is lost in the others. */
static void columns_of_wide_range_do_not_fit(void **state)
{
	(void)state;
	fill();
	for (unsigned i = 0; i < KEYS * COLUMNS; i++)
		v[i] = i % COLUMNS == i / COLUMNS % COLUMNS; /* mostly zeros */
	assert_false(attend());
	fill();
	for (unsigned i = 0; i < KEYS; i++)
		v[i * COLUMNS + 9] *= i % 4 ? 1 : 1e-9f;
	assert_false(attend());
}

static void scores_that_could_be_lost_do_not_fit(void **state)
{
	(void)state;
	fill();
	for (unsigned i = 0; i < KEYS; i++)
		k[i * COLUMNS] = 1e6f;
	for (unsigned i = 0; i < QUERIES; i++)
		q[i * COLUMNS] = 0;
	assert_false(attend());
	fill();
	for (unsigned i = 0; i < KEYS * COLUMNS; i++)
		k[i] *= 0x1p60f;
	for (unsigned i = 0; i < QUERIES * COLUMNS; i++)
		q[i] *= 0x1p-60f;
	assert_false(attend());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(ordinary_numbers_fit),
	    cmocka_unit_test(columns_of_any_size_fit),
	    cmocka_unit_test(keys_that_do_not_count_are_not_looked_at),
	    cmocka_unit_test(numbers_that_are_not_finite_do_not_fit),
	    cmocka_unit_test(columns_of_wide_range_do_not_fit),
	    cmocka_unit_test(scores_that_could_be_lost_do_not_fit),
	};

	emulated_gpu(4, 1, "f16x3 of attention on given operands");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
