/* test_recent.c: share/recent.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "share/recent.h"

#define SECOND 1000000000u

static void test_one_user_is_alone(void **state)
{
	struct recent_users r = {0};

	(void)state;
	for (unsigned i = 1; i < 5; i++) {
		recent_users_note(&r, 1000, i * SECOND / 2);
		assert_false(recent_users_has_other(&r, i * SECOND / 2));
	}
}

/* The superuser's number is that of a user who has not come yet. */
static void test_user_0_counts(void **state)
{
	struct recent_users r = {0};

	(void)state;
	recent_users_note(&r, 0, SECOND);
	assert_false(recent_users_has_other(&r, SECOND));
	recent_users_note(&r, 1000, SECOND + 1);
	assert_true(recent_users_has_other(&r, SECOND + 1));
	recent_users_note(&r, 0, SECOND + 2);
	assert_true(recent_users_has_other(&r, SECOND + 2));
}

static void test_others_are_forgotten_after_a_minute(void **state)
{
	struct recent_users r = {0};

	(void)state;
	recent_users_note(&r, 1000, SECOND);
	recent_users_note(&r, 1001, SECOND + 10);
	recent_users_note(&r, 1000, SECOND + 20);
	assert_true(recent_users_has_other(&r, SECOND + 20));
	recent_users_note(&r, 1000, SECOND + 10 + RECENT_NS);
	assert_false(recent_users_has_other(&r, SECOND + 10 + RECENT_NS));
	recent_users_note(&r, 1001, SECOND + 11 + RECENT_NS);
	assert_true(recent_users_has_other(&r, SECOND + 11 + RECENT_NS));
}

static void test_a_third_user_does_not_hide_the_second(void **state)
{
	struct recent_users r = {0};

	(void)state;
	recent_users_note(&r, 1000, SECOND);
	recent_users_note(&r, 1001, SECOND + 1);
	recent_users_note(&r, 1002, SECOND + 2);
	assert_true(recent_users_has_other(&r, SECOND + 2));
	recent_users_note(&r, 1000, SECOND + 3);
	assert_true(recent_users_has_other(&r, SECOND + 3));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_one_user_is_alone),
	    cmocka_unit_test(test_user_0_counts),
	    cmocka_unit_test(test_others_are_forgotten_after_a_minute),
	    cmocka_unit_test(test_a_third_user_does_not_hide_the_second),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
