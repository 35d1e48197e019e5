/* Tests that a thread gets a shorter slice and keeps its nice value. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <linux/sched/types.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/slice.h"

static uint64_t slice_ns(void)
{
	struct sched_attr attributes = {.size = sizeof attributes};

	assert_int_equal(syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0), 0);
	return attributes.sched_runtime;
}

static void test_a_shorter_slice(void **state)
{
	uint64_t before = slice_ns();

	(void)state;
	assert_int_equal(setpriority(PRIO_PROCESS, 0, 7), 0);
	slice_shorten();
	assert_int_equal(getpriority(PRIO_PROCESS, 0), 7);
	if (before == 0)
		skip(); /* an older kernel */
	assert_int_equal(slice_ns(), 100000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_shorter_slice)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
