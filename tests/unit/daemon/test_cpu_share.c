/* Short slices of a thread, as Linux says that it has them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu_share.h"

/* What sched_getattr(2) writes, in the words of 8 bytes that the test looks at. */
enum { POLICY_HIGH, FLAGS, NICE_LOW, RUNTIME, WORDS = 6 };

static void get(uint64_t ret_words[WORDS])
{
	assert_return_code(syscall(SYS_sched_getattr, 0, ret_words, WORDS * sizeof *ret_words, 0), 0);
}

static void a_thread_gets_them_and_keeps_the_rest(void **state)
{
	uint64_t before[WORDS] = {0}, after[WORDS] = {0};

	(void)state;
	setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + 1);
	get(before);
	if (before[RUNTIME] == 0)
		skip(); /* before Linux 6.12, or not under its fair scheduler */
	ask_for_short_slices();
	get(after);
	assert_int_equal(after[RUNTIME], SLICE_NS);
	assert_int_equal(after[POLICY_HIGH], before[POLICY_HIGH]);
	assert_int_equal(after[NICE_LOW], before[NICE_LOW]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(a_thread_gets_them_and_keeps_the_rest)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
