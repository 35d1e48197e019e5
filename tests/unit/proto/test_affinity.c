/* Tests the CPUs that a thread may run on, and leaving one of them. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "affinity.h"

#define TRIES 100

static cpu_set_t all;

static int set_up(void **state)
{
	(void)state;
	return sched_getaffinity(0, sizeof all, &all);
}

static int tear_down(void **state)
{
	(void)state;
	return sched_setaffinity(0, sizeof all, &all);
}

/* Returns the n-th CPU that this process may use; -1: there are fewer. */
static int nth_cpu(int n)
{
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &all) && n-- == 0)
			return cpu;
	return -1;
}

static void assert_may_use(const cpu_set_t *expected)
{
	cpu_set_t found;

	assert_int_equal(sched_getaffinity(0, sizeof found, &found), 0);
	assert_true(CPU_EQUAL(&found, expected));
	assert_int_equal(affinity_count(), CPU_COUNT(expected));
}

/* A scheduler may bring the thread back at once, but not half of the time. */
static void test_leaves(void **state)
{
	unsigned elsewhere = 0;

	(void)state;
	if (nth_cpu(1) < 0)
		skip();
	for (unsigned i = 0; i < TRIES; i++) {
		int cpu = sched_getcpu();

		affinity_leave(cpu);
		elsewhere += sched_getcpu() != cpu;
		assert_may_use(&all);
	}
	assert_true(elsewhere > TRIES / 2);
}

static void test_stays_on_its_only_one(void **state)
{
	cpu_set_t one;
	int cpu = nth_cpu(0);

	(void)state;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
	affinity_leave(cpu);
	assert_may_use(&one);
	assert_int_equal(sched_getcpu(), cpu);
}

static void test_stays_where_none_is_known(void **state)
{
	(void)state;
	affinity_leave(-1);
	assert_may_use(&all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_teardown(test_leaves, tear_down),
	    cmocka_unit_test_teardown(test_stays_on_its_only_one, tear_down),
	    cmocka_unit_test(test_stays_where_none_is_known),
	};
	return cmocka_run_group_tests(tests, set_up, NULL);
}
