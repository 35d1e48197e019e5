/* Tests the set of hashes that forgets the oldest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gemm/seen.h"
#include "hash.h"

static void it_has_what_was_added(void **state)
{
	static struct seen seen;
	unsigned kept = 0;

	(void)state;
	for (uint64_t i = 1; i <= SEEN_SETS; i++) {
		uint64_t hash = hash_word(0, i);

		kept += seen_has(&seen, hash); /* none was added */
		seen_add(&seen, hash);
		assert_true(seen_has(&seen, hash));
	}
	assert_int_equal(kept, 0);
	for (uint64_t i = 1; i <= SEEN_SETS; i++)
		kept += seen_has(&seen, hash_word(0, i));
	assert_true(kept > SEEN_SETS * 95 / 100); /* those of crowded sets are gone */
}

static void a_full_set_forgets_the_oldest(void **state)
{
	static struct seen seen;

	(void)state;
	for (uint64_t i = 1; i <= SEEN_WAYS + 1; i++) {
		seen_add(&seen, i * SEEN_SETS + 5);
		seen_add(&seen, i * SEEN_SETS + 5); /* counts once */
	}
	assert_false(seen_has(&seen, SEEN_SETS + 5));
	for (uint64_t i = 2; i <= SEEN_WAYS + 1; i++)
		assert_true(seen_has(&seen, i * SEEN_SETS + 5));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(it_has_what_was_added),
	    cmocka_unit_test(a_full_set_forgets_the_oldest),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
