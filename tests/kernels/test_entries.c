/* test_entries: which ops the tables of check_kernels know. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "check.h"

static void test_every_op_is_known(void **state)
{
	(void)state;
	for (size_t i = 0; i < OP_COUNT; i++) {
		assert_string_equal(shaper_of(ops[i])->op, ops[i]->name);
		assert_true(judge_knows(ops[i]));
	}
}

static void test_an_op_without_an_entry_is_told_apart(void **state)
{
	const struct op fresh = {.name = "fresh"};

	(void)state;
	assert_null(shaper_of(&fresh));
	assert_false(judge_knows(&fresh));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_every_op_is_known),
	    cmocka_unit_test(test_an_op_without_an_entry_is_told_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
