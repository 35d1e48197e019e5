/*
 * Tests attention on the CPU by small problems whose results are known: which keys a query sees, heads that
 * share keys, masks, rows that see nothing, numbers that are not finite, and what is refused. And which tiles
 * of keys the kernel wgmma goes through.
 */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "attention/attention.h"
#include "attention/wgmma_plan.h"
#include "common/cpu.h"

enum { MOST = 4096 };

static float q[MOST], k[MOST], v[MOST], mask[MOST], o[MOST], lse[MOST];
static int32_t lengths[8];
static char workspace[4 << 20];

static struct view view_of(float *data, const uint64_t shape[4])
{
	struct view view = {.space = data, .data = data, .dtype = KOPS_F32, .rank = 4};

	memcpy(view.shape, shape, sizeof view.shape);
	view_make_dense(&view);
	return view;
}

/* depth and values are 1, so that a result is a mean of values. */
static struct op_args args_of_batches(uint64_t batch, uint64_t heads, uint64_t shared, uint64_t queries,
                                      uint64_t keys)
{
	struct op_args args = {.op = op_by_name("attention")};

	op_set_defaults(&args);
	args.views[ATTENTION_Q] = view_of(q, (uint64_t[]){batch, heads, queries, 1});
	args.views[ATTENTION_K] = view_of(k, (uint64_t[]){batch, shared, keys, 1});
	args.views[ATTENTION_V] = view_of(v, (uint64_t[]){batch, shared, keys, 1});
	args.views[ATTENTION_O] = view_of(o, (uint64_t[]){batch, heads, queries, 1});
	for (unsigned i = 0; i < MOST; i++) {
		q[i] = k[i] = mask[i] = 0;
		v[i] = (float)i;
		o[i] = NAN;
	}
	return args;
}

static struct op_args args_of(uint64_t heads, uint64_t shared, uint64_t queries, uint64_t keys)
{
	return args_of_batches(1, heads, shared, queries, keys);
}

static void set_lengths(struct op_args *args, const int32_t *from, uint64_t n)
{
	args->views[ATTENTION_LENGTHS] = (struct view){
	    .space = lengths, .data = lengths, .dtype = KOPS_I32, .rank = 1, .shape = {n}, .strides = {1}};
	memcpy(lengths, from, n * sizeof *from);
}

static void want_lse(struct op_args *args)
{
	struct view *view = &args->views[ATTENTION_LSE];

	*view = view_of(lse, args->views[ATTENTION_Q].shape);
	view->rank = 3;
	view_make_dense(view);
}

static const struct kernel *kernel_named(const char *name)
{
	const struct kernel *kernel = attention_cpu_kernels.kernels;

	while (strcmp(kernel->name, name) != 0)
		kernel++;
	return kernel;
}

static void run(struct op_args args, const char *name)
{
	const struct kernel *kernel = kernel_named(name);
	char why[WHY_BYTES];

	assert_int_equal(op_check(&args, why), 0);
	struct launch launch = {.workspace = workspace,
	                        .workspace_bytes = kernel->workspace ? kernel->workspace(&args) : 0};
	assert_true(launch.workspace_bytes <= sizeof workspace);
	assert_int_equal(kernel->launch(&args, &launch), 0);
}

static const char *const kernels[] = {"tiles", "reference"};

static void compare(const char *what, const float *got, const float *expected, unsigned n)
{
	for (unsigned e = 0; e < n; e++)
		if (!(isnan(expected[e])   ? isnan(got[e])
		      : isinf(expected[e]) ? got[e] == expected[e]
		                           : fabsf(got[e] - expected[e]) < 1e-5f))
			fail_msg("%s: element %u is %g, should be %g", what, e, (double)got[e],
			         (double)expected[e]);
}

static void expect(struct op_args args, const float *expected, unsigned n)
{
	for (unsigned i = 0; i < 2; i++) {
		memset(o, 0xff, sizeof o);
		run(args, kernels[i]);
		compare(kernels[i], o, expected, n);
	}
}

static void expect_lse(struct op_args args, const float *expected, unsigned n)
{
	want_lse(&args);
	for (unsigned i = 0; i < 2; i++) {
		memset(lse, 0xff, sizeof lse);
		run(args, kernels[i]);
		compare(kernels[i], lse, expected, n);
	}
}

/* Scores are equal, so each result is the mean of the values that its query sees. */
static void test_which_keys_are_seen(void **state)
{
	static const struct {
		uint64_t queries, keys;
		enum attention_causal causal;
		uint32_t window;
		float expected[4];
	} cases[] = {
	    {4, 4, ATTENTION_NOT_CAUSAL, 0, {1.5, 1.5, 1.5, 1.5}},
	    {4, 4, ATTENTION_TOP_LEFT, 0, {0, 0.5, 1, 1.5}},
	    {4, 4, ATTENTION_BOTTOM_RIGHT, 0, {0, 0.5, 1, 1.5}},
	    {2, 4, ATTENTION_TOP_LEFT, 0, {0, 0.5}},
	    {2, 4, ATTENTION_BOTTOM_RIGHT, 0, {1, 1.5}},
	    {4, 2, ATTENTION_TOP_LEFT, 0, {0, 0.5, 0.5, 0.5}},
	    {4, 2, ATTENTION_BOTTOM_RIGHT, 0, {0, 0, 0, 0.5}}, /* the first two see nothing */
	    {4, 4, ATTENTION_TOP_LEFT, 2, {0, 0.5, 1.5, 2.5}},
	    {4, 4, ATTENTION_NOT_CAUSAL, 2, {0.5, 1, 2, 2.5}},
	    {4, 4, ATTENTION_NOT_CAUSAL, 1, {0, 1, 2, 3}},
	    {1, 4, ATTENTION_BOTTOM_RIGHT, 3, {2}},
	    {4, 1, ATTENTION_TOP_LEFT, 1, {0, 0, 0, 0}},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct op_args args = args_of(1, 1, cases[i].queries, cases[i].keys);

		args.params.plain.counts[ATTENTION_DIAGONAL] = cases[i].causal;
		args.params.plain.counts[ATTENTION_WINDOW] = cases[i].window;
		expect(args, cases[i].expected, (unsigned)cases[i].queries);
	}
}

static void test_neighbouring_heads_share_keys(void **state)
{
	(void)state;
	expect(args_of(4, 2, 1, 3), (float[]){1, 1, 4, 4}, 4);
}

static void test_a_mask_is_added_and_repeated(void **state)
{
	struct op_args args = args_of(2, 2, 2, 2);

	(void)state;
	args.views[ATTENTION_MASK] = view_of(mask, (uint64_t[]){1, 1, 2, 2});
	mask[0] = -INFINITY; /* query 0 sees key 1 only */
	mask[3] = -200;
	expect(args, (float[]){1, 0, 3, 2}, 4);
	mask[1] = -INFINITY; /* and now nothing */
	expect(args, (float[]){0, 0, 0, 2}, 4);
}

/* Those from the length on are not seen, and numbers that are no length are the nearest one. */
static void test_lengths_hide_keys(void **state)
{
	struct op_args args = args_of_batches(4, 1, 1, 2, 4);
	uint32_t *diagonal = &args.params.plain.counts[ATTENTION_DIAGONAL];

	(void)state;
	set_lengths(&args, (int32_t[]){2, -1, 5, 0}, 4);
	expect(args, (float[]){0.5, 0.5, 0, 0, 9.5, 9.5, 0, 0}, 8);
	*diagonal = ATTENTION_TOP_LEFT;
	expect(args, (float[]){0, 0.5, 0, 0, 8, 8.5, 0, 0}, 8);
	*diagonal = ATTENTION_BOTTOM_RIGHT; /* of the keys that count */
	expect(args, (float[]){0, 0.5, 0, 0, 9, 9.5, 0, 0}, 8);
	set_lengths(&args, (int32_t[]){1, 3, INT32_MIN, INT32_MAX}, 4);
	expect(args, (float[]){0, 0, 4.5, 5, 0, 0, 13, 13.5}, 8);
	args.params.plain.counts[ATTENTION_WINDOW] = 1;
	expect(args, (float[]){0, 0, 5, 6, 0, 0, 14, 15}, 8);
	v[1] = NAN;
	args.params.plain.counts[ATTENTION_WINDOW] = 0;
	args.views[ATTENTION_O].shape[0] = args.views[ATTENTION_Q].shape[0] = 1;
	args.views[ATTENTION_K].shape[0] = args.views[ATTENTION_V].shape[0] = 1;
	args.views[ATTENTION_LENGTHS].shape[0] = 1;
	expect(args, (float[]){0, 0}, 2); /* nobody sees key 1 */
}

static void test_lse_is_a_logarithm(void **state)
{
	const float ln_2 = 0.693147f, ln_3 = 1.098612f;
	struct op_args args = args_of_batches(2, 1, 1, 2, 4);

	(void)state;
	expect_lse(args, (float[]){2 * ln_2, 2 * ln_2, 2 * ln_2, 2 * ln_2}, 4);
	set_lengths(&args, (int32_t[]){3, 0}, 2);
	expect_lse(args, (float[]){ln_3, ln_3, -INFINITY, -INFINITY}, 4);
	args.params.plain.counts[ATTENTION_DIAGONAL] = ATTENTION_TOP_LEFT;
	expect_lse(args, (float[]){0, ln_2, -INFINITY, -INFINITY}, 4);
	q[1] = 2;
	k[0] = k[1] = 50; /* scores of 100 */
	expect_lse(args, (float[]){0, 100 + ln_2, -INFINITY, -INFINITY}, 4);
	q[0] = NAN;
	expect_lse(args, (float[]){NAN, 100 + ln_2}, 2);
	q[0] = 0;
	args.views[ATTENTION_MASK] = view_of(mask, (uint64_t[]){1, 1, 1, 4});
	mask[0] = mask[1] = -INFINITY;
	expect_lse(args, (float[]){-INFINITY, -INFINITY}, 2);
}

static void test_scores_are_scaled(void **state)
{
	struct op_args args = args_of(1, 1, 1, 2);

	(void)state;
	args.params.plain.numbers[ATTENTION_SCALE] = 2;
	q[0] = 1;
	k[1] = 0.5f; /* scores 0 and 1 */
	expect(args, (float[]){(float)(M_E / (1 + M_E))}, 1);
	args.params.plain.numbers[ATTENTION_SCALE] = -2;
	expect(args, (float[]){(float)(1 / (1 + M_E))}, 1);
	k[1] = 1e30f; /* of very large scores only the order counts */
	expect(args, (float[]){0}, 1);
}

static void test_what_is_not_finite_shows(void **state)
{
	struct op_args args = args_of(1, 1, 2, 2);

	(void)state;
	q[0] = NAN;
	expect(args, (float[]){NAN, 0.5}, 2);
	q[0] = 0;
	k[1] = NAN;
	args.params.plain.counts[ATTENTION_DIAGONAL] = ATTENTION_TOP_LEFT;
	expect(args, (float[]){0, NAN}, 2); /* query 0 does not see key 1 */
}

static void test_nothing_to_see_or_to_do(void **state)
{
	(void)state;
	expect(args_of(1, 1, 3, 0), (float[]){0, 0, 0}, 3);
	struct op_args args = args_of(1, 1, 0, 3);
	char why[WHY_BYTES];
	assert_int_equal(op_check(&args, why), 0);
	assert_true(op_is_empty(&args));
}

static void test_parts_know_where_they_are(void **state)
{
	struct op_args args = args_of(1, 1, 4, 4), part;
	char why[WHY_BYTES];

	(void)state;
	args.params.plain.counts[ATTENTION_DIAGONAL] = ATTENTION_TOP_LEFT;
	assert_int_equal(op_check(&args, why), 0);
	part = args;
	assert_true(op_narrow(&part, 2, 2, 2));
	part.op->reference(&part);
	assert_true(o[2] == 1 && o[3] == 1.5f); /* the means of 0 to 2, and of 0 to 3 */
}

/* Runs each kernel on parts: of heads, of queries, and of keys, one after another. */
static void test_parts_make_the_same(void **state)
{
	static const uint32_t wanted[][PART_AXES_MAX] = {{1, 1, 1}, {1, 3, 1}, {1, 6, 2}, {1, 2, 3}};
	static float expected[MOST], expected_lse[MOST];
	static double carried[3 * MOST];
	struct op_args args = args_of(6, 2, 3, 7);
	char why[WHY_BYTES];

	(void)state;
	for (unsigned i = 0; i < MOST; i++) {
		q[i] = (float)(i % 5) - 2;
		k[i] = (float)(i % 7) - 3;
		mask[i] = (float)(i % 3);
	}
	args.views[ATTENTION_MASK] = view_of(mask, (uint64_t[]){1, 6, 3, 7});
	for (unsigned key = 0; key < 5; key++)
		mask[7 + key] = -INFINITY; /* query 1 sees nothing in the first parts */
	args.params.plain.counts[ATTENTION_DIAGONAL] = ATTENTION_BOTTOM_RIGHT;
	set_lengths(&args, (int32_t[]){6}, 1);
	want_lse(&args);
	run(args, "reference");
	memcpy(expected, o, sizeof o);
	memcpy(expected_lse, lse, sizeof lse);
	assert_int_equal(op_check(&args, why), 0);
	for (unsigned i = 0; i < 8; i++) {
		const struct kernel *kernel = kernel_named(kernels[i % 2]);
		struct launch launch = {.workspace = workspace};
		struct op_cut cut;

		assert_true(op_cut_grid(&args, wanted[i / 2], i / 2 % 2 == 0 ? 4 : 7, &cut));
		assert_true(cut.n_parts >= 4 && cut.carried_bytes <= sizeof carried);
		args.carried = carried;
		memset(o, 0xff, sizeof o);
		memset(lse, 0xff, sizeof lse);
		memset(carried, 0xff, sizeof carried);
		for (uint32_t part = 0; part < cut.n_parts; part++)
			assert_int_equal(kernel_launch_part(kernel, &args, &cut, part, &launch, NULL), 0);
		compare(kernel->name, o, expected, 18);
		compare(kernel->name, lse, expected_lse, 18);
	}
}

static void refuse(struct op_args args, int code, const char *sentence)
{
	char why[WHY_BYTES];

	assert_int_equal(op_check(&args, why), code);
	if (!strstr(why, sentence))
		fail_msg("\"%s\" is not in \"%s\"", sentence, why);
}

static void test_what_is_refused(void **state)
{
	struct op_args args = args_of(3, 2, 2, 2);

	(void)state;
	refuse(args, KOPS_E_SHAPE, "k's heads must divide q's");
	args = args_of(2, 2, 2, 2);
	args.views[ATTENTION_Q].shape[3] = 2;
	refuse(args, KOPS_E_SHAPE, "head_dim");
	args = args_of(2, 2, 2, 2);
	args.views[ATTENTION_V].shape[2] = 3;
	refuse(args, KOPS_E_SHAPE, "the same heads and keys");
	args = args_of(2, 2, 2, 2);
	args.views[ATTENTION_K].shape[0] = args.views[ATTENTION_V].shape[0] = 2;
	refuse(args, KOPS_E_SHAPE, "one batch");
	args = args_of(2, 2, 2, 2);
	args.views[ATTENTION_O].shape[3] = 2;
	refuse(args, KOPS_E_SHAPE, "o has q's shape");
	args = args_of(2, 2, 2, 2);
	args.views[ATTENTION_MASK] = view_of(mask, (uint64_t[]){1, 3, 2, 2});
	refuse(args, KOPS_E_SHAPE, "mask");
	args = args_of_batches(2, 1, 1, 1, 1);
	set_lengths(&args, (int32_t[]){1, 1, 1}, 3);
	refuse(args, KOPS_E_SHAPE, "lengths is 3; it has one number for each batch: [2]");
	args.views[ATTENTION_LENGTHS].dtype = KOPS_F32;
	refuse(args, KOPS_E_DTYPE, "lengths is f32; attention takes i32");
	args = args_of(2, 2, 3, 2);
	want_lse(&args);
	args.views[ATTENTION_LSE].shape[1] = 1;
	refuse(args, KOPS_E_SHAPE, "lse has q's shape without the last axis");
	want_lse(&args);
	args.views[ATTENTION_LSE].dtype = KOPS_F64;
	refuse(args, KOPS_E_DTYPE, "lse is f32 then");
	want_lse(&args);
	args.views[ATTENTION_LSE].space = args.views[ATTENTION_O].space;
	refuse(args, KOPS_E_OVERLAP, "output lse overlaps output o");
	args = args_of(1, 1, 1, 1);
	for (unsigned i = ATTENTION_Q; i <= ATTENTION_K; i++)
		args.views[i] = view_of(q, (uint64_t[]){1, 1, 1, ATTENTION_DEPTH_MAX});
	assert_int_equal(op_check(&args, (char[WHY_BYTES]){0}), 0);
	args = args_of(1, 1, 1, 1);
	for (unsigned i = ATTENTION_Q; i <= ATTENTION_K; i++)
		args.views[i] = view_of(q, (uint64_t[]){1, 1, 1, ATTENTION_DEPTH_MAX + 1});
	refuse(args, KOPS_E_SHAPE, "head_dim and value_dim are at most 1024");
	args = args_of(1, 1, 1, 1);
	args.views[ATTENTION_V] = view_of(v, (uint64_t[]){1, 1, 1, ATTENTION_DEPTH_MAX + 1});
	args.views[ATTENTION_O] = view_of(o, (uint64_t[]){1, 1, 1, ATTENTION_DEPTH_MAX + 1});
	refuse(args, KOPS_E_SHAPE, "head_dim and value_dim are at most 1024");
	args = args_of(2, 2, 2, 2);
	args.views[ATTENTION_O] = args.views[ATTENTION_Q];
	refuse(args, KOPS_E_OVERLAP, "");
}

/* Counts the rows that see a key. */
static int viewers(const struct attention_rule *rule, int first, int last, int64_t key)
{
	int n = 0;

	for (int row = first; row <= last; row++) {
		struct attention_keys seen = attention_keys_of(rule, row);
		n += key >= seen.begin && key < seen.end;
	}
	return n;
}

/* What a tile leaves out nobody sees, and what it does not mask all rows see. */
static void check_tiles(const struct attention_rule *rule, int first, int last, int each)
{
	struct wgmma_keys tiles = wgmma_keys_of(rule, first, last, each);

	assert_true(tiles.begin >= 0 && (int64_t)(tiles.end - 1) * each < rule->keys);
	for (int64_t key = 0; key < rule->keys; key++) {
		int tile = (int)(key / each), seen = viewers(rule, first, last, key);

		if (tile < tiles.begin || tile >= tiles.end)
			assert_int_equal(seen, 0);
		else if (tile >= tiles.plain_begin && tile < tiles.plain_end)
			assert_int_equal(seen, last - first + 1);
	}
	for (int tile = tiles.plain_begin; tile < tiles.plain_end && tile < tiles.end; tile++)
		assert_true((int64_t)(tile + 1) * each <= rule->keys);
}

static void test_tiles_of_keys(void **state)
{
	const int64_t firsts[] = {-70, -1, 0, 1, 3, 64, 200}, all_keys[] = {1, 63, 64, 65, 130};
	(void)state;

	for (unsigned i = 0; i < sizeof firsts / sizeof *firsts; i++)
		for (unsigned j = 0; j < sizeof all_keys / sizeof *all_keys; j++)
			for (int64_t window = 0; window < 100; window += 33)
				for (int causal = 0; causal < 2; causal++) {
					struct attention_rule rule = {.scale = 1,
					                              .first = firsts[i],
					                              .keys = all_keys[j],
					                              .window = window,
					                              .causal = causal};

					check_tiles(&rule, 0, 127, 64);
					check_tiles(&rule, 128, 140, 48);
					check_tiles(&rule, 5, 5, 16);
				}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_which_keys_are_seen),
	    cmocka_unit_test(test_neighbouring_heads_share_keys),
	    cmocka_unit_test(test_a_mask_is_added_and_repeated),
	    cmocka_unit_test(test_lengths_hide_keys),
	    cmocka_unit_test(test_lse_is_a_logarithm),
	    cmocka_unit_test(test_scores_are_scaled),
	    cmocka_unit_test(test_what_is_not_finite_shows),
	    cmocka_unit_test(test_nothing_to_see_or_to_do),
	    cmocka_unit_test(test_parts_know_where_they_are),
	    cmocka_unit_test(test_parts_make_the_same),
	    cmocka_unit_test(test_what_is_refused),
	    cmocka_unit_test(test_tiles_of_keys),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
