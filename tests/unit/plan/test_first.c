/* Tests which kernel runs an op whose shape a library does not know yet, and which one is got ready. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "plan/plan.h"

/* The expected times of the kernels, and what a first launch takes more; 0: the shape is known. */
static double own_us, library_us, first_us;
static bool own_is_accurate, library_takes_it;

static bool takes_all(const struct op_args *args, const char **ret_why_not)
{
	(void)args;
	(void)ret_why_not;
	return true;
}

static bool takes_some(const struct op_args *args, const char **ret_why_not)
{
	(void)args;
	*ret_why_not = "does not take this";
	return library_takes_it;
}

static bool is_accurate(const struct op_args *args, const char **ret_why_not)
{
	(void)args;
	*ret_why_not = "may have larger errors";
	return own_is_accurate;
}

static double own_ns(const struct op_args *args)
{
	(void)args;
	return own_us * 1e3;
}

static double library_ns(const struct op_args *args)
{
	(void)args;
	return library_us * 1e3;
}

static double first_ns(const struct op_args *args)
{
	(void)args;
	assert_true(library_takes_it); /* else it is not to be asked */
	return first_us * 1e3;
}

static const struct kernel kernels[] = {
    {.name = "own", .supports = takes_all, .accurate = is_accurate, .time_ns = own_ns},
    {.name = "library", .supports = takes_some, .time_ns = library_ns, .first_ns = first_ns},
};
static const struct kernel *const own = &kernels[0], *const library = &kernels[1];

static const struct kernel_list *kernels_of(const struct op *op)
{
	static const struct kernel_list list = {kernels, 2};

	(void)op;
	return &list;
}

static struct memory memory = {.host = &memory, .bytes = 1 << 20, .reached_bytes = 1 << 20};

static struct run_op op_of(unsigned sharing_first)
{
	struct view line = {.space = &memory, .dtype = KOPS_F32, .rank = 1, .shape = {64}, .strides = {1}};

	return (struct run_op){.args = {.op = op_by_name("copy"), .views = {line, line}},
	                       .pinned = "",
	                       .sharing_first = sharing_first};
}

static const struct planner planner = {.kernels = kernels_of, .info.memory_bytes = 1 << 30};

/* Plans a job of n such ops. Returns the kernel of the first. */
static const struct kernel *plan(struct run_op *list, unsigned n, bool *ret_has_first)
{
	struct run run = {.ops = list, .n_ops = n, .has_first_launches = true};

	assert_int_equal(plan_run(&planner, &run), 0);
	for (unsigned i = 1; i < n; i++) {
		assert_ptr_equal(list[i].kernel, list[0].kernel);
		assert_null(list[i].first_launch); /* one is enough */
	}
	*ret_has_first = run.has_first_launches;
	return list[0].kernel;
}

static int set_up(void **state)
{
	(void)state;
	own_us = 20;
	library_us = 10;
	first_us = 60;
	own_is_accurate = library_takes_it = true;
	return 0;
}

static void another_kernel_runs_until_it_is_ready(void **state)
{
	struct run_op op = op_of(1);
	bool has_first;

	(void)state;
	assert_ptr_equal(plan(&op, 1, &has_first), own);
	assert_ptr_equal(op.first_launch, library);
	assert_true(has_first);
	assert_string_equal(op.why, "20.0 us by estimate; library 10.0, but it does not know the shape yet");
	first_us = 0; /* it does */
	assert_ptr_equal(plan(&op, 1, &has_first), library);
	assert_null(op.first_launch);
	assert_false(has_first);
}

static void what_gains_more_does_not_wait(void **state)
{
	struct run_op op = op_of(1);
	bool has_first;

	(void)state;
	own_us = 70.1;
	assert_ptr_equal(plan(&op, 1, &has_first), library);
	own_us = 69.9;
	assert_ptr_equal(plan(&op, 1, &has_first), own);
	own_us = 1;
	assert_ptr_equal(plan(&op, 1, &has_first), own);
	assert_ptr_equal(op.first_launch, library); /* for its trials */
}

static void ops_share_a_first_launch(void **state)
{
	struct run_op eight[8];
	bool has_first;

	(void)state;
	for (unsigned i = 0; i < 8; i++)
		eight[i] = op_of(8);
	assert_ptr_equal(plan(eight, 8, &has_first), library); /* 8 * 10 + 60 < 8 * 20 */
	assert_ptr_equal(eight[0].first_launch, library);
	own_us = 17;
	assert_ptr_equal(plan(eight, 8, &has_first), own);
	assert_true(has_first);
}

static void errors_count_first(void **state)
{
	struct run_op op = op_of(1);
	bool has_first;

	(void)state;
	own_is_accurate = false;
	assert_ptr_equal(plan(&op, 1, &has_first), library);
	assert_false(op.larger_errors);
	assert_true(has_first);
}

static void what_the_library_does_not_take_needs_no_first_launch(void **state)
{
	struct run_op op = op_of(1);
	bool has_first;

	(void)state;
	library_takes_it = false;
	assert_ptr_equal(plan(&op, 1, &has_first), own);
	assert_null(op.first_launch);
	assert_false(has_first);
}

/* What a job names or jobs of the shape showed runs, and with autotune = 0 choices depend on nothing else. */
static void other_reasons_to_choose_stay(void **state)
{
	const struct preference learned = {.n = 1, .kernels = {1}, .why = "learned"};
	struct run_op op = op_of(1);
	bool has_first;

	(void)state;
	op.preferred = &learned;
	assert_ptr_equal(plan(&op, 1, &has_first), library);
	assert_ptr_equal(op.first_launch, library);
	op = op_of(0);
	assert_ptr_equal(plan(&op, 1, &has_first), library);
	assert_null(op.first_launch);
	assert_false(has_first);
	op.pinned = "library";
	op.sharing_first = 1; /* which it is not if a kernel is named; but if it were */
	assert_ptr_equal(plan(&op, 1, &has_first), library);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup(another_kernel_runs_until_it_is_ready, set_up),
	    cmocka_unit_test_setup(what_gains_more_does_not_wait, set_up),
	    cmocka_unit_test_setup(ops_share_a_first_launch, set_up),
	    cmocka_unit_test_setup(errors_count_first, set_up),
	    cmocka_unit_test_setup(what_the_library_does_not_take_needs_no_first_launch, set_up),
	    cmocka_unit_test_setup(other_reasons_to_choose_stay, set_up),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
