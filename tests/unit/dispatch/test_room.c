/* test_room.c: dispatch/room.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "dispatch/room.h"

#define SECOND 1000000000u

static void test_a_user_alone_pays_only_what_is_free(void **state)
{
	struct recent_users users = {0};

	(void)state;
	recent_users_note(&users, 1000, SECOND);
	assert_int_equal(room_for(&users, 900, SECOND), RUN_KEEPS_ALL);
	assert_int_equal(room_for(&users, 1100, SECOND), RUN_LEAVES_ROOM);
	assert_int_equal(room_for(&users, 1e6, SECOND), RUN_LEAVES_ROOM);
}

static void test_among_others_runs_are_confined_unless_they_are_short(void **state)
{
	struct recent_users users = {0};

	(void)state;
	recent_users_note(&users, 1000, SECOND);
	recent_users_note(&users, 1001, SECOND + 1);
	assert_int_equal(room_for(&users, 190, SECOND + 1), RUN_KEEPS_ALL);
	assert_int_equal(room_for(&users, 210, SECOND + 1), RUN_IS_CONFINED);
	assert_int_equal(room_for(&users, 1e6, SECOND + 1), RUN_IS_CONFINED);
	assert_int_equal(room_for(&users, 210, SECOND + 1 + RECENT_NS), RUN_KEEPS_ALL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_a_user_alone_pays_only_what_is_free),
	    cmocka_unit_test(test_among_others_runs_are_confined_unless_they_are_short),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
