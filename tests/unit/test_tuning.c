/* shape_class.c and tuning.c: classes of shapes, their text, and tables of measurements that nobody vouches
 * for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/shape_class.h"
#include "device/tuning.h"

#define HEAD  "kops tuning table 1\n"
#define OURS  "[kopsd 1.2.3 on Some GPU, driver 5]\n"
#define CLASS "gemm/f32/f32/1x1024x1024:2/1x1024x1024:2/1x1024x1024:2"

static bool takes_all(const struct op_args *args, const char **ret_why_not)
{
	(void)args;
	(void)ret_why_not;
	return true;
}

static const struct kernel rows[] = {{.name = "quick", .supports = takes_all},
                                     {.name = "brown", .supports = takes_all},
                                     {.name = "fox", .supports = takes_all}};

static const struct kernel_list *kernels_of(const struct op *op)
{
	static const struct kernel_list list = {rows, 3}, none;

	return strcmp(op->name, "gemm") == 0 ? &list : &none;
}

static const struct tuning_owner owner = {
    .daemon = "kopsd 1.2.3", .description = "Some GPU, driver 5", .kernels = kernels_of};

/* ---- Classes ---- */

static struct view dense(kops_dtype dtype, uint64_t n_rows, uint64_t cols)
{
	struct view v = {.dtype = dtype, .rank = 2, .shape = {n_rows, cols}};

	view_make_dense(&v);
	return v;
}

/* A checked product; each operand has a space of its own. */
static struct op_args gemm_of(kops_dtype dtype, uint64_t m, uint64_t n, uint64_t k)
{
	struct op_args args = {.op = op_by_name("gemm"), .params.gemm = {.alpha = 1}};
	static char spaces[3];
	char why[WHY_BYTES];

	args.views[0] = dense(dtype, m, k);
	args.views[1] = dense(dtype, k, n);
	args.views[2] = dense(dtype, m, n);
	for (int i = 0; i < 3; i++)
		args.views[i].space = &spaces[i];
	assert_int_equal(args.op->check(&args, why), 0);
	return args;
}

static const char *class_of(const struct op_args *args)
{
	static char text[SHAPE_CLASS_TEXT_BYTES];
	struct shape_class class, again;

	shape_class_of(args, &class);
	shape_class_format(&class, text);
	assert_true(shape_class_parse(text, &again));
	assert_int_equal(shape_class_compare(&class, &again), 0);
	return text;
}

static void class_tells_what_matters(void **state)
{
	struct op_args args = gemm_of(KOPS_F32, 1000, 1100, 1448);

	(void)state;
	assert_string_equal(class_of(&args), CLASS);
	args = gemm_of(KOPS_F32, 1000, 1100, 1452);
	assert_string_equal(class_of(&args), "gemm/f32/f32/1x1024x2048:2/1x2048x1024:2/1x1024x1024:2");
	args.params.gemm.precision = KOPS_PRECISION_IEEE;
	assert_string_equal(class_of(&args), "gemm/f32/ieee/1x1024x2048:2/1x2048x1024:2/1x1024x1024:2");
	args = gemm_of(KOPS_F16, 8, 8, 64);
	args.params.gemm.precision = KOPS_PRECISION_IEEE; /* of f32 only */
	assert_string_equal(class_of(&args), "gemm/f16/f32/1x8x64:2/1x64x8:2/1x8x8:2");
	args.views[0].strides[1] = 1; /* column-major A, its lines 16 bytes long */
	args.views[0].strides[2] = 8;
	assert_string_equal(class_of(&args), "gemm/f16/f32/1x8x64:1/1x64x8:2/1x8x8:2");
	args.views[1].strides[1] = 16;
	args.views[1].strides[2] = 2;
	assert_string_equal(class_of(&args), "gemm/f16/f32/1x8x64:1/1x64x8:-/1x8x8:2/unaligned");
}

static void lines_that_begin_anywhere_are_another_class(void **state)
{
	struct op_args args = gemm_of(KOPS_F32, 1001, 1000, 1000);

	(void)state;
	assert_string_equal(class_of(&args), CLASS);
	args = gemm_of(KOPS_F32, 1000, 1001, 1000);
	assert_string_equal(class_of(&args), CLASS "/unaligned");
	args = gemm_of(KOPS_F64, 2, 2, 2);
	assert_string_equal(class_of(&args), "gemm/f64/f32/1x2x2:2/1x2x2:2/1x2x2:2");
	args.views[2].offset = 8;
	assert_string_equal(class_of(&args), "gemm/f64/f32/1x2x2:2/1x2x2:2/1x2x2:2/unaligned");
}

static void vectors_and_the_largest_have_a_class(void **state)
{
	struct op_args args = gemm_of(KOPS_F32, 1, 1, 1);

	(void)state;
	assert_string_equal(class_of(&args), "gemm/f32/f32/1x1x1:-/1x1x1:-/1x1x1:-");
	args.views[0].shape[1] = UINT64_MAX;
	args.views[0].strides[1] = INT64_MIN;
	assert_string_equal(class_of(&args), "gemm/f32/f32/1x9223372036854775808x1:-/1x1x1:-/1x1x1:-");
}

static void text_that_is_no_class_is_refused(void **state)
{
	static const char *const bad[] = {
	    "",
	    "gemm",
	    "gemm/",
	    "gemm/f32",
	    "gemm/f32/f32",
	    "gemm/f32/f32/",
	    "sum/f32/8:0/8:0/8:0",
	    "gemm/f31/f32/1x8x8:2/1x8x8:2/1x8x8:2",
	    "gemm/f32/f16/1x8x8:2/1x8x8:2/1x8x8:2",
	    "gemm/f32/1x8x8:2/1x8x8:2/1x8x8:2",
	    "gemm/f32/f32/1x8x8:2/1x8x8:2",
	    "gemm/f32/f32/1x8x8:2/1x8x8:2/1x8x8:2/",
	    "gemm/f32/f32/1x8x8:2/1x8x8:2/1x8x8:2/aligned",
	    "gemm/f32/f32/1x8x8:2/1x8x8:2/1x8x8:2 ",
	    "gemm/f32/f32/1x8x8:2/1x8x8:2/1x8x8:3",
	    "gemm/f32/f32/1x8x8:2/1x8x8:2/1x8x8:",
	    "gemm/f32/f32/1x8x8:2/1x8x8:2/1x8x8",
	    "gemm/f32/f32/1x8x8:2/1x8x8:2/1x8x",
	    "gemm/f32/f32/1x8x8:2/1x8x8:2/1x8x9:2",
	    "gemm/f32/f32/1x8x8:2/1x8x8:2/1x8x08:2",
	    "gemm/f32/f32/1x8x8:2/1x8x8:2/1x8x0:2",
	    "gemm/f32/f32/1x8x8:2/1x8x8:2/1x8x8:/",
	    "gemm/f32/f32/1x8x8:2/1x8x8:2/1x1x1x1x1:2",
	    "gemm/f32/f32/1x8x8:2/1x8x8:2/1x8x18446744073709551616:2",
	    "add/f32/8:0/8:0/8:0/8:0",
	};
	struct shape_class class;

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		if (shape_class_parse(bad[i], &class))
			fail_msg("taken for a class: \"%s\"", bad[i]);
	assert_true(shape_class_parse("add/bf16/8:0/8:-/8:0/unaligned", &class));
}

/* ---- Tables ---- */

static struct tuning *parse(const char *text, bool *ret_stale)
{
	char why[TUNING_WHY_BYTES];
	struct tuning *t = NULL;

	if (tuning_parse(text, strlen(text), &owner, &t, ret_stale, why) < 0)
		fail_msg("%s", why);
	return t;
}

static void fastest_row_is_found_by_class(void **state)
{
	struct op_args args = gemm_of(KOPS_F32, 1000, 1100, 900);
	const struct tuned *tuned;
	bool stale;
	struct tuning *t = parse(HEAD "[kopsd 1.2.3 on Other GPU]\n" CLASS " fox 1\n" OURS
	                              "# measured now\n\n" CLASS " quick 30.5 dodo 1 brown 1900 fox 2.25\n"
	                              "add/f32/8:0/8:0/8:0 quick 1\n",
	                         &stale);

	(void)state;
	assert_false(stale);
	assert_int_equal(tuning_count(t), 1); /* add has no such row here */
	tuned = tuning_find(t, &args);
	assert_int_equal(tuned->n, 3);
	assert_memory_equal(tuned->kernels, ((uint8_t[]){2, 0, 1}), 3);
	assert_string_equal(tuned->why,
	                    "fastest of 3 measured for this class of shapes (2.25 µs; quick 30.5 µs)");
	args = gemm_of(KOPS_F32, 1000, 1100, 400);
	assert_null(tuning_find(t, &args));
	tuning_free(t);
	assert_null(tuning_find(NULL, &args));
}

static void times_are_told_in_fitting_units(void **state)
{
	struct op_args args = gemm_of(KOPS_F32, 1024, 1024, 1024);
	bool stale;
	struct tuning *t = parse(HEAD OURS CLASS " quick 1900 fox 3600000", &stale); /* no newline at the end */

	(void)state;
	assert_string_equal(tuning_find(t, &args)->why,
	                    "fastest of 2 measured for this class of shapes (1.9 ms; fox 3.6 s)");
	tuning_free(t);
	t = parse(HEAD OURS CLASS " quick 7\n" CLASS " fox 999.7\n", &stale); /* the later line counts */
	assert_string_equal(tuning_find(t, &args)->why, "the one measured for this class of shapes (1 ms)");
	assert_int_equal(tuning_find(t, &args)->kernels[0], 2);
	tuning_free(t);
}

static void other_sections_are_not_ours(void **state)
{
	bool stale;

	(void)state;
	assert_null(parse(HEAD, &stale));
	assert_false(stale);
	assert_null(parse(HEAD "[kopsd 1.2.4 on Some GPU, driver 5]\n" CLASS " fox 1\n", &stale));
	assert_true(stale);
	assert_null(parse(HEAD "[kopsd 1.2.3 on Some GPU, driver 6]\nwhatever that means\n", &stale));
	assert_true(stale);
	assert_null(parse(HEAD "[kopsd 1.2.3 on Some GPU 2, driver 5]\n", &stale));
	assert_false(stale);
	struct tuning *t = parse(HEAD "[kopsd 1.2.2 on Some GPU, driver 5]\n" OURS, &stale);
	assert_int_equal(tuning_count(t), 0);
	assert_false(stale);
	tuning_free(t);
}

static void many_classes_are_kept_apart(void **state)
{
	size_t bytes = 400000, used;
	char *text = malloc(bytes);
	bool stale;

	(void)state;
	used = (size_t)snprintf(text, bytes, HEAD OURS);
	for (unsigned i = 0; i < 1728; i++)
		used += (size_t)snprintf(text + used, bytes - used,
		                         "gemm/f32/f32/1x%ux%u:2/1x%ux%u:2/1x%ux%u:2 quick %u fox 10000\n",
		                         1u << i % 12, 1u << i / 144, 1u << i / 144, 1u << i / 12 % 12,
		                         1u << i % 12, 1u << i / 12 % 12, i + 1);
	struct tuning *t = parse(text, &stale);
	assert_int_equal(tuning_count(t), 1728);
	for (unsigned i = 288; i < 1728; i++) {
		struct op_args args = gemm_of(KOPS_F32, 1u << i % 12, 1u << i / 12 % 12, 1u << i / 144);
		const struct tuned *tuned = tuning_find(t, &args);
		char time[32];

		if (1u << i % 12 == 1 || 1u << i / 12 % 12 < 4)
			continue; /* vectors, and lines shorter than 16 bytes */
		snprintf(time, sizeof time, "(%.3g %s;", i < 999 ? i + 1 : (i + 1) / 1e3,
		         i < 999 ? "µs" : "ms");
		assert_non_null(tuned);
		assert_non_null(strstr(tuned->why, time));
	}
	tuning_free(t);
	free(text);
}

/* The c-th of 16384 products whose classes differ. */
static void product_of(unsigned c, unsigned long long extents[3])
{
	extents[0] = 1ull << c % 32;
	extents[1] = 4ull << c / 32 % 16;
	extents[2] = 4ull << c / 512;
}

/* A table of n lines, of the first n_classes classes in turn, line i (from 0) with a time of i + 1. */
static char *make_table(unsigned n, unsigned n_classes)
{
	size_t room = 256 + (size_t)n * 128, used;
	char *text = malloc(room);
	unsigned long long x[3];

	assert_non_null(text);
	used = (size_t)snprintf(text, room, HEAD OURS);
	for (unsigned i = 0; i < n; i++) {
		product_of(i % n_classes, x);
		used += (size_t)snprintf(text + used, room - used,
		                         "gemm/f32/f32/1x%llux%llu:2/1x%llux%llu:2/1x%llux%llu:2 fox %u\n",
		                         x[0], x[2], x[2], x[1], x[0], x[1], i + 1);
	}
	return text;
}

static void last_of_many_lines_of_a_class_counts(void **state)
{
	char *text = make_table(5000, 1024), want[80];
	unsigned long long x[3];
	bool stale;
	struct tuning *t = parse(text, &stale);

	(void)state;
	assert_int_equal(tuning_count(t), 1024);
	for (unsigned c = 0; c < 1024; c++) {
		unsigned last = c + (4999 - c) / 1024 * 1024;
		product_of(c, x);
		struct op_args args = gemm_of(KOPS_F32, x[0], x[1], x[2]);
		const struct tuned *tuned = tuning_find(t, &args);
		snprintf(want, sizeof want, "the one measured for this class of shapes (%.3g ms)",
		         (last + 1) / 1e3);
		assert_non_null(tuned);
		assert_string_equal(tuned->why, want);
	}
	tuning_free(t);
	free(text);
}

static void too_many_classes_are_refused(void **state)
{
	char *full = make_table(TUNING_CLASSES_MAX, TUNING_CLASSES_MAX);
	char *over = make_table(TUNING_CLASSES_MAX + 1, 1), why[TUNING_WHY_BYTES];
	bool stale;
	struct tuning *t = parse(full, &stale);

	(void)state;
	assert_int_equal(tuning_count(t), TUNING_CLASSES_MAX);
	assert_true(strlen(full) <= TUNING_BYTES_MAX);
	tuning_free(t);
	t = NULL;
	assert_int_equal(tuning_parse(over, strlen(over), &owner, &t, &stale, why), KOPS_E_INVALID);
	assert_string_equal(why, "line 16387 is one class more than 16384");
	assert_null(t);
	free(full);
	free(over);
}

static void hostile_tables_are_void(void **state)
{
	static char long_line[5000];
	static const struct {
		const char *text, *why;
	} cases[] = {
	    {"", "line 1 is not"},
	    {"kops tuning table 2\n", "line 1 is not"},
	    {"\x7f"
	     "ELF",
	     "line 1 is not"},
	    {HEAD "[kopsd 1.2.3 on Some GPU, driver 5\n", "line 2 begins with '['"},
	    {HEAD "[\n", "line 2 begins with '['"},
	    {HEAD OURS OURS, "line 3 begins a section that is there"},
	    {HEAD OURS "gemm\n", "line 3 begins with no class"},
	    {HEAD OURS " " CLASS " fox 1\n", "line 3 begins with no class"},
	    {HEAD OURS CLASS "\n", "line 3 has a class and no kernel"},
	    {HEAD OURS CLASS "   \n", "line 3 has a class and no kernel"},
	    {HEAD OURS CLASS " fox\n", "line 3 has no time"},
	    {HEAD OURS CLASS " fox 1 quick\n", "behind \"quick\""},
	    {HEAD OURS CLASS " fox 0\n", "line 3 has no time"},
	    {HEAD OURS CLASS " fox -1\n", "line 3 has no time"},
	    {HEAD OURS CLASS " fox nan\n", "line 3 has no time"},
	    {HEAD OURS CLASS " fox inf\n", "line 3 has no time"},
	    {HEAD OURS CLASS " fox 0x1\n", "line 3 has no time"},
	    {HEAD OURS CLASS " fox 1e3\n", "line 3 has no time"},
	    {HEAD OURS CLASS " fox ...\n", "line 3 has no time"},
	    {HEAD OURS CLASS " fox 10000000000000\n", "line 3 has no time"},
	    {HEAD OURS CLASS " a 1 b 1 c 1 d 1 e 1 f 1 g 1 h 1 i 1 j 1 k 1 l 1 m 1 n 1 o 1 p 1 q 1\n",
	     "line 3 has more than 16 kernels"},
	    {long_line, "line 1 is longer than 2047 bytes"},
	};
	char why[TUNING_WHY_BYTES];
	struct tuning *t = NULL;
	bool stale = false;

	(void)state;
	memset(long_line, 'x', sizeof long_line - 1);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		int rc = tuning_parse(cases[i].text, strlen(cases[i].text), &owner, &t, &stale, why);
		if (rc != KOPS_E_INVALID || !strstr(why, cases[i].why))
			fail_msg("case %zu: %d, \"%s\"", i, rc, why);
		assert_null(t);
	}
	assert_int_equal(tuning_parse(HEAD "\0", sizeof HEAD, &owner, &t, &stale, why), KOPS_E_INVALID);
	assert_string_equal(why, "line 2 holds a NUL byte");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(class_tells_what_matters),
	    cmocka_unit_test(lines_that_begin_anywhere_are_another_class),
	    cmocka_unit_test(vectors_and_the_largest_have_a_class),
	    cmocka_unit_test(text_that_is_no_class_is_refused),
	    cmocka_unit_test(fastest_row_is_found_by_class),
	    cmocka_unit_test(times_are_told_in_fitting_units),
	    cmocka_unit_test(other_sections_are_not_ours),
	    cmocka_unit_test(many_classes_are_kept_apart),
	    cmocka_unit_test(last_of_many_lines_of_a_class_counts),
	    cmocka_unit_test(too_many_classes_are_refused),
	    cmocka_unit_test(hostile_tables_are_void),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
