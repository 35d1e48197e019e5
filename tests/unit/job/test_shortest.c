/* Tests the shortest of the latest times, which a prepared job is planned by. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "job/shortest.h"

static struct shortest of(const double *us, unsigned n)
{
	struct shortest s = {0};

	for (unsigned i = 0; i < n; i++)
		shortest_note(&s, us[i]);
	return s;
}

static void test_long_waits_change_nothing(void **state)
{
	struct shortest s = {0};

	(void)state;
	shortest_note(&s, 30);
	for (unsigned i = 0; i < 100; i++) {
		shortest_note(&s, i % 7 == 3 ? 31 : 48000);
		assert_true(s.us <= 31.0f);
	}
}

static void test_a_first_wait_is_forgotten_at_once(void **state)
{
	(void)state;
	assert_true(of((double[]){48000}, 1).us == 48000.0f);
	assert_true(of((double[]){48000, 30}, 2).us == 30.0f);
}

static void test_it_is_known_after_eight(void **state)
{
	struct shortest s = {0};

	(void)state;
	for (unsigned i = 0; i < 3 * SHORTEST_OF; i++) {
		assert_int_equal(shortest_is_known(&s), i >= SHORTEST_OF);
		shortest_note(&s, 1 + i);
	}
}

/* Whatever comes before, it follows when all of the last times are longer. */
static void test_it_follows_what_lasts(void **state)
{
	(void)state;
	for (unsigned before = 0; before < 2 * SHORTEST_OF; before++) {
		struct shortest s = {0};

		for (unsigned i = 0; i < before; i++)
			shortest_note(&s, 10);
		for (unsigned i = 0; i < 2 * SHORTEST_OF; i++)
			shortest_note(&s, 20 + i);
		assert_true(s.us >= 20.0f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_long_waits_change_nothing),
	    cmocka_unit_test(test_a_first_wait_is_forgotten_at_once),
	    cmocka_unit_test(test_it_is_known_after_eight),
	    cmocka_unit_test(test_it_follows_what_lasts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
