/*
 * Tests when a device's thread sleeps, spins and wakes the loop, depending on what is in flight and planned.
 * Time is simulated.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "device/forecast.h"
#include "plan/run.h"

#define US 1000u
#define MS 1000000u

static void a_long_run_lets_it_sleep_until_shortly_before_its_end(void **state)
{
	struct forecast f = {0};
	uint64_t nap;

	(void)state;
	forecast_started(&f, 5 * MS, 20 * MS, true, false);
	nap = forecast_nap_ns(&f, 5 * MS);
	assert_in_range(nap, 16 * MS, 20 * MS - 300 * US);
	assert_false(forecast_may_end_in(&f, 5 * MS, nap));
	assert_int_equal(forecast_nap_ns(&f, 25 * MS), 0);
	assert_int_equal(forecast_nap_ns(&f, 40 * MS), SLEEP_OUT_NS); /* far too late: the device wakes it */
	assert_true(forecast_may_end_in(&f, 40 * MS, SLEEP_OUT_NS));
}

static void the_loop_is_called_once_before_the_end(void **state)
{
	struct forecast f = {0};

	(void)state;
	forecast_started(&f, 0, 20 * MS, true, false);
	assert_int_equal(forecast_call_until_ns(&f, 15 * MS), 0);
	assert_in_range(forecast_call_until_ns(&f, 19 * MS), 20 * MS, 24 * MS);
	assert_int_equal(forecast_call_until_ns(&f, 19 * MS + US), 0);
}

static void nobody_sleeps_in_a_short_run_whose_caller_spins(void **state)
{
	struct forecast f = {0};

	(void)state;
	forecast_started(&f, 0, 5 * MS, true, true);
	assert_int_equal(forecast_nap_ns(&f, US), 0);
	assert_true(forecast_call_until_ns(&f, US) > 5 * MS);
}

static void a_long_run_is_slept_through_though_its_caller_spins(void **state)
{
	struct forecast f = {0};

	(void)state;
	forecast_started(&f, 0, 20 * MS, true, true);
	assert_in_range(forecast_nap_ns(&f, US), 16 * MS, 20 * MS - 300 * US);
	assert_int_equal(forecast_call_until_ns(&f, 17 * MS), 0);
}

static void one_after_the_other_has_its_own_plan(void **state)
{
	struct forecast f = {0};

	(void)state;
	forecast_started(&f, 0, 20 * MS, true, false);
	forecast_started(&f, 0, 10 * MS, true, false);
	assert_int_equal(f.next_ns, 10 * MS);
	forecast_ended(&f, 20 * MS);
	forecast_left(&f, 20 * MS);
	assert_int_equal(f.next_ns, 30 * MS);
}

/*
 * Four clients keep four short runs out, which run beside each other. Each takes as long as planned, so four
 * end in the time planned for one. If each were due after all before it, the next end would seem further and
 * further away, and the thread would sleep.
 */
static void runs_beside_each_other_are_not_put_off(void **state)
{
	enum { PLAN = 16 * US, STEP = PLAN / 4 };
	struct forecast f = {0};
	uint64_t now = 0;

	(void)state;
	for (unsigned i = 0; i < 4; i++, now += STEP)
		forecast_started(&f, now, PLAN, true, false);
	for (unsigned i = 0; i < 100000; i++, now += STEP) {
		forecast_ended(&f, PLAN);
		forecast_left(&f, now);
		assert_int_equal(forecast_nap_ns(&f, now), 0);
		forecast_started(&f, now + US, PLAN, true, false);
		assert_int_equal(forecast_nap_ns(&f, now + US), 0);
	}
}

/* Between two slices of a longer one the device would wait until the thread has slept enough. */
static void only_a_run_in_one_slice_ends_as_before(void **state)
{
	struct run_op op = {.plan_us = PART_US};
	struct run run = {.ops = &op, .n_ops = 1, .repeats = true};

	(void)state;
	assert_true(run_ends_as_before(&run));
	op.plan_us = PART_US + 1;
	assert_false(run_ends_as_before(&run));
	op.plan_us = 1;
	run.repeats = false;
	assert_false(run_ends_as_before(&run));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_long_run_lets_it_sleep_until_shortly_before_its_end),
	    cmocka_unit_test(the_loop_is_called_once_before_the_end),
	    cmocka_unit_test(nobody_sleeps_in_a_short_run_whose_caller_spins),
	    cmocka_unit_test(a_long_run_is_slept_through_though_its_caller_spins),
	    cmocka_unit_test(one_after_the_other_has_its_own_plan),
	    cmocka_unit_test(runs_beside_each_other_are_not_put_off),
	    cmocka_unit_test(only_a_run_in_one_slice_ends_as_before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
