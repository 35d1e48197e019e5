/* Tests choose.c: which kernel runs, and the reasons given. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kernel.h"

static bool takes_even(const struct op_args *args, const char **ret_why_not)
{
	*ret_why_not = "needs an even number of columns";
	return op_output_const(args)->shape[1] % 2 == 0;
}

static bool takes_small(const struct op_args *args, const char **ret_why_not)
{
	*ret_why_not = "takes up to 100 rows";
	return op_output_const(args)->shape[0] <= 100;
}

/* Kernels with times: 10 ns or more per column. */
static double steep_ns(const struct op_args *args)
{
	return 10 * (double)op_output_const(args)->shape[1];
}

static double flat_ns(const struct op_args *args)
{
	(void)args;
	return 200;
}

static double few_ns(const struct op_args *args)
{
	(void)args;
	return 1;
}

static double slow_ns(const struct op_args *args)
{
	return 1e6 * (double)op_output_const(args)->shape[1];
}

/* Is slow if there are few columns. */
static double wants_many_ns(const struct op_args *args)
{
	return op_output_const(args)->shape[1] > 8 ? 1 : 300;
}

static const struct kernel kernels[] = {
    {.name = "fast", .supports = takes_even, .time_ns = few_ns},
    {.name = "fair", .supports = takes_small, .time_ns = flat_ns},
};
static const struct kernel_list list = {kernels, 2};

static bool is_exact_in_few(const struct op_args *args, const char **ret_why_not)
{
	*ret_why_not = "is exact up to 32 columns";
	return op_output_const(args)->shape[1] <= 32;
}

/* A kernel whose speed depends on the problem comes before the others. */
static const struct kernel kernels_of_choice[] = {
    {.name = "large", .supports = takes_even, .accurate = is_exact_in_few, .time_ns = wants_many_ns},
    {.name = "fair", .supports = takes_small, .time_ns = flat_ns},
};
static const struct kernel_list list_of_choice = {kernels_of_choice, 2};

static const struct kernel kernels_of_times[] = {
    {.name = "steep", .supports = takes_even, .time_ns = steep_ns},
    {.name = "slow", .supports = takes_small, .time_ns = slow_ns},
    {.name = "flat", .supports = takes_small, .accurate = is_exact_in_few, .time_ns = flat_ns},
};
static const struct kernel_list list_of_times = {kernels_of_times, 3};

enum { FAST = 1, FAIR = 2 }; /* bits of the disabled mask */

static struct op_args add_of(uint64_t n_rows, uint64_t cols)
{
	struct op_args args = {.op = op_by_name("add")};
	struct view *y = op_output(&args);

	*y = (struct view){.dtype = KOPS_F32, .rank = 2, .shape = {n_rows, cols}};
	return args;
}

/* Returns the chosen kernel, or NULL with its code in *ret_rc. */
static const char *choose(uint64_t n_rows, uint64_t cols, const char *pinned, uint64_t disabled, int *ret_rc,
                          char why[WHY_BYTES])
{
	struct op_args args = add_of(n_rows, cols);
	const struct kernel *kernel = NULL;

	why[0] = 0;
	*ret_rc = kernel_choose(&list, &args, pinned, NULL, disabled, &kernel, why);
	assert_true((*ret_rc == 0) == (kernel != NULL));
	return kernel ? kernel->name : NULL;
}

static void auto_takes_the_first_that_fits(void **state)
{
	char why[WHY_BYTES];
	int rc;

	(void)state;
	assert_string_equal(choose(4, 4, NULL, 0, &rc, why), "fast");
	assert_string_equal(why, "first choice for add f32");
	assert_string_equal(choose(4, 4, "", 0, &rc, why), "fast");
	assert_string_equal(choose(4, 5, NULL, 0, &rc, why), "fair");
	assert_string_equal(why, "fast needs an even number of columns");
	assert_string_equal(choose(4, 4, NULL, FAST, &rc, why), "fair");
	assert_string_equal(why, "fast failed its self-test");
}

static void pinned_kernel_runs_or_is_refused(void **state)
{
	char why[WHY_BYTES];
	int rc;

	(void)state;
	assert_string_equal(choose(4, 4, "fair", 0, &rc, why), "fair");
	assert_string_equal(why, "asked for by name");
	assert_null(choose(4, 5, "fast", 0, &rc, why));
	assert_int_equal(rc, KOPS_E_UNSUPPORTED);
	assert_string_equal(why, "add kernel \"fast\" needs an even number of columns; \"fair\" would do");
	assert_null(choose(4, 4, "fast", FAST, &rc, why));
	assert_int_equal(rc, KOPS_E_UNSUPPORTED);
	assert_string_equal(why, "add kernel \"fast\" failed its self-test on this device; \"fair\" would do");
	assert_null(choose(101, 5, "fair", 0, &rc, why));
	assert_string_equal(
	    why, "add kernel \"fair\" takes up to 100 rows; no other kernel of this device would do either");
}

static void unknown_name_lists_the_kernels(void **state)
{
	char why[WHY_BYTES], name[WHY_BYTES];
	int rc;

	(void)state;
	assert_null(choose(4, 4, "fastest", 0, &rc, why));
	assert_int_equal(rc, KOPS_E_UNSUPPORTED);
	assert_string_equal(why, "add has no kernel \"fastest\" on this device; it has fast, fair");
	memset(name, 'x', sizeof name - 1);
	name[sizeof name - 1] = 0;
	assert_null(choose(4, 4, name, 0, &rc, why));
	assert_non_null(strstr(why, "it has fast, fair"));
}

static void nothing_fits_says_why_of_each(void **state)
{
	char why[WHY_BYTES];
	int rc;

	(void)state;
	assert_null(choose(101, 5, NULL, 0, &rc, why));
	assert_int_equal(rc, KOPS_E_UNSUPPORTED);
	assert_string_equal(
	    why, "no kernel of this device can run this add f32: fast needs an even number of columns; "
	         "fair takes up to 100 rows");
	assert_null(choose(4, 4, NULL, FAST | FAIR, &rc, why));
	assert_string_equal(why, "no kernel of this device can run this add f32: fast failed its self-test; "
	                         "fair failed its self-test");
}

static const char *choose_in(const struct kernel_list *kernels_of, uint64_t n_rows, uint64_t cols,
                             uint64_t disabled, char why[WHY_BYTES])
{
	struct op_args args = add_of(n_rows, cols);
	const struct kernel *kernel = NULL;

	assert_int_equal(kernel_choose(kernels_of, &args, NULL, NULL, disabled, &kernel, why), 0);
	return kernel->name;
}

static const char *choose_of(uint64_t n_rows, uint64_t cols, const char *pinned,
                             const struct preference *preferred, uint64_t disabled, char why[WHY_BYTES])
{
	struct op_args args = add_of(n_rows, cols);
	const struct kernel *kernel = NULL;

	assert_int_equal(kernel_choose(&list_of_choice, &args, pinned, preferred, disabled, &kernel, why), 0);
	return kernel->name;
}

static void auto_asks_each_for_its_time(void **state)
{
	char why[WHY_BYTES];

	(void)state;
	assert_string_equal(choose_of(4, 16, NULL, NULL, 0, why), "large");
	assert_string_equal(why, "first choice for add f32");
	assert_string_equal(choose_of(4, 4, NULL, NULL, 0, why), "fair");
	assert_string_equal(why, "by estimate it takes 0.2 us, large 0.3 us");
	assert_string_equal(choose_of(101, 4, NULL, NULL, 0, why), "large"); /* fair does not take it */
	assert_string_equal(why, "first choice for add f32");
	assert_string_equal(choose_of(4, 4, NULL, NULL, FAIR, why), "large");
	assert_string_equal(choose_of(4, 4, "large", NULL, 0, why), "large"); /* named, fast or not */
	assert_string_equal(why, "asked for by name");
}

static void auto_takes_what_is_expected_to_be_the_fastest(void **state)
{
	const struct kernel_list *times = &list_of_times;
	char why[WHY_BYTES];

	(void)state;
	assert_string_equal(choose_in(times, 4, 10, 0, why), "steep");
	assert_string_equal(why, "first choice for add f32");
	assert_string_equal(choose_in(times, 4, 20, 0, why), "steep"); /* of equals, the first */
	assert_string_equal(choose_in(times, 4, 32, 0, why), "flat");
	assert_string_equal(why, "by estimate it takes 0.2 us, steep 0.3 us");
	assert_string_equal(choose_in(times, 101, 32, 0, why), "steep");    /* flat does not take it */
	assert_string_equal(choose_in(times, 4, 34, 0, why), "steep");      /* flat is not accurate */
	assert_string_equal(choose_in(times, 4, 5, 0, why), "flat");        /* steep does not take it */
	assert_string_equal(choose_in(times, 4, 32, 1 << 2, why), "steep"); /* flat failed its self-test */
	assert_string_equal(choose_in(times, 4, 33, 0, why), "slow");       /* no other is accurate */
	assert_string_equal(why, "steep needs an even number of columns");
	assert_string_equal(choose_in(times, 4, 33, 1 << 1, why), "flat"); /* no other takes it */
}

static void auto_takes_what_is_preferred(void **state)
{
	const struct preference fair_first = {.n = 2, .kernels = {1, 0}, .why = "measured"};
	const struct preference large_only = {.n = 1, .kernels = {0}, .why = "measured"};
	char why[WHY_BYTES];

	(void)state;
	assert_string_equal(choose_of(4, 16, NULL, &fair_first, 0, why), "fair");
	assert_string_equal(why, "measured");
	assert_string_equal(choose_of(4, 4, NULL, &large_only, 0, why), "large"); /* whatever its estimate */
	assert_string_equal(choose_of(4, 16, "large", &fair_first, 0, why), "large");
	assert_string_equal(why, "asked for by name");
	assert_string_equal(choose_of(101, 4, NULL, &fair_first, 0, why), "large");
	assert_string_equal(why, "measured");
	assert_string_equal(choose_of(4, 4, NULL, &fair_first, FAIR, why), "large");
	assert_string_equal(why, "measured");
	assert_string_equal(choose_of(4, 34, NULL, &large_only, 0, why), "fair"); /* as if none was preferred */
	assert_string_equal(why, "large is exact up to 32 columns");
	assert_string_equal(choose_of(101, 34, NULL, NULL, 0, why), "large"); /* it is the only one */
	assert_string_equal(choose_of(4, 34, "large", NULL, 0, why), "large");
	assert_string_equal(why, "asked for by name; is exact up to 32 columns");
	const struct preference large_first = {.n = 2, .kernels = {0, 1}, .why = "measured"};
	assert_string_equal(choose_of(4, 32, NULL, &large_first, 0, why), "large");
	assert_string_equal(choose_of(4, 34, NULL, &large_first, 0, why), "fair");
	assert_string_equal(why, "measured");
	assert_string_equal(choose_of(4, 5, NULL, &large_only, 0, why),
	                    "fair"); /* none of the preferred ones fits */
	assert_string_equal(why, "large needs an even number of columns");
}

static void rivals_are_the_candidates_with_their_times(void **state)
{
	struct rival rivals[RIVALS_MAX];
	struct op_args args = add_of(4, 16);

	(void)state;
	assert_int_equal(kernel_rivals(&list_of_times, &args, 0, rivals), 3);
	assert_int_equal(rivals[0].kernel, 0);
	assert_true(rivals[0].time_ns == 160);
	assert_int_equal(rivals[2].kernel, 2);
	assert_true(rivals[2].time_ns == 200);
	assert_int_equal(kernel_rivals(&list_of_times, &args, 1 | 2, rivals), 1);
	assert_int_equal(rivals[0].kernel, 2);
	args = add_of(4, 64); /* "flat" is not accurate there */
	assert_int_equal(kernel_rivals(&list_of_times, &args, 2, rivals), 1);
	assert_int_equal(rivals[0].kernel, 0);
	assert_int_equal(kernel_rivals(&list, &args, 1 | 2, rivals), 0);
}

static const char *passed_over(uint64_t n_rows, uint64_t cols, uint64_t disabled, size_t chosen)
{
	static char text[PASSED_OVER_BYTES];
	struct op_args args = add_of(n_rows, cols);

	kernel_passed_over(&list, &args, disabled, &kernels[chosen], text);
	return text;
}

static void receipt_tells_of_the_other_kernels(void **state)
{
	(void)state;
	assert_string_equal(passed_over(4, 4, 0, 0), "fair");
	assert_string_equal(passed_over(101, 4, 0, 0), "fair (takes up to 100 rows)");
	assert_string_equal(passed_over(4, 5, 0, 1), "fast (needs an even number of columns)");
	assert_string_equal(passed_over(4, 4, FAST, 1), "fast (failed its self-test)");

	struct op_args args = add_of(4, 4);
	char text[PASSED_OVER_BYTES];
	kernel_passed_over(&list_of_choice, &args, 0, &kernels_of_choice[1], text);
	assert_string_equal(text, "large");
	args = add_of(4, 34);
	kernel_passed_over(&list_of_choice, &args, 0, &kernels_of_choice[1], text);
	assert_string_equal(text, "large (is exact up to 32 columns)");
}

static void long_tale_is_cut(void **state)
{
	struct kernel many[64];
	const struct kernel_list all = {many, 64};
	struct op_args args = add_of(101, 5);
	char text[PASSED_OVER_BYTES + 1];

	(void)state;
	for (size_t i = 0; i < all.n; i++)
		many[i] = (struct kernel){.name = "step", .supports = i % 2 ? takes_even : takes_small};
	memset(text, 'x', sizeof text);
	kernel_passed_over(&all, &args, 0, &many[0], text);
	assert_int_equal(strlen(text), PASSED_OVER_BYTES - 1);
	assert_int_equal(text[PASSED_OVER_BYTES], 'x');
	assert_int_equal(strncmp(text, "step (needs an even number of columns), step (takes", 50), 0);
}

static void empty_list_names_the_op(void **state)
{
	const struct kernel_list none = {NULL, 0};
	const struct kernel *kernel = NULL;
	struct op_args args = add_of(1, 1);
	char why[WHY_BYTES];

	(void)state;
	assert_int_equal(kernel_choose(&none, &args, NULL, NULL, 0, &kernel, why), KOPS_E_UNSUPPORTED);
	assert_string_equal(why, "this device has no kernel for add; try another device");
	assert_null(kernel);
}

static double asked_ns(const struct op_args *args)
{
	(void)args;
	fail_msg("a model of time was asked about an output without elements");
	return 0;
}

static void empty_outputs_are_not_timed(void **state)
{
	static const struct kernel asked[] = {
	    {.name = "one", .supports = takes_even, .time_ns = asked_ns},
	    {.name = "two", .supports = takes_small, .time_ns = asked_ns},
	};
	static const struct kernel_list list_of_asked = {asked, 2};
	const struct preference measured = {.n = 1, .kernels = {1}, .why = "measured"};
	struct op_args args = add_of(0, 7);
	struct rival rivals[RIVALS_MAX];
	const struct kernel *kernel;
	char why[WHY_BYTES];

	(void)state;
	assert_int_equal(kernel_choose(&list_of_asked, &args, NULL, NULL, 0, &kernel, why), 0);
	assert_string_equal(kernel->name, "two"); /* the first that takes 7 columns */
	assert_string_equal(why, "the output has no elements: nothing is computed");
	args = add_of(0, 8);
	assert_int_equal(kernel_choose(&list_of_asked, &args, NULL, &measured, 0, &kernel, why), 0);
	assert_string_equal(kernel->name, "one");
	assert_int_equal(kernel_rivals(&list_of_asked, &args, 0, rivals), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(auto_takes_the_first_that_fits),
	    cmocka_unit_test(auto_asks_each_for_its_time),
	    cmocka_unit_test(auto_takes_what_is_expected_to_be_the_fastest),
	    cmocka_unit_test(auto_takes_what_is_preferred),
	    cmocka_unit_test(pinned_kernel_runs_or_is_refused),
	    cmocka_unit_test(unknown_name_lists_the_kernels),
	    cmocka_unit_test(nothing_fits_says_why_of_each),
	    cmocka_unit_test(empty_list_names_the_op),
	    cmocka_unit_test(receipt_tells_of_the_other_kernels),
	    cmocka_unit_test(long_tale_is_cut),
	    cmocka_unit_test(empty_outputs_are_not_timed),
	    cmocka_unit_test(rivals_are_the_candidates_with_their_times),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
