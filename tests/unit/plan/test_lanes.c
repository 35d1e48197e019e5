/* test_lanes.c: which stream of a GPU a run goes to, and whether a long one has to wait: cuda/choice.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cuda/choice.h"

static void test_short_runs_use_lanes_of_long_ones_while_none_is_out(void **state)
{
	struct lane_load loads[CUDA_LANES] = {{0}};

	(void)state;
	for (unsigned i = 0; i < 3 * CUDA_LANES_SHORT; i++) {
		unsigned lane = cuda_choose_lane(loads, CUDA_SHORT);

		assert_int_equal(lane, i % CUDA_LANES_SHORT);
		loads[lane].out++;
	}
}

static void test_long_runs_keep_off_lanes_of_high_priority(void **state)
{
	struct lane_load loads[CUDA_LANES] = {{0}};

	(void)state;
	for (unsigned i = 0; i < 8; i++) {
		unsigned lane = cuda_choose_lane(loads, CUDA_LONG);

		assert_in_range(lane, CUDA_LANES_HIGH, CUDA_LANES_SHORT - 1);
		loads[lane].out++;
		loads[lane].long_out++;
	}
	for (unsigned i = 0; i < CUDA_LANES_LONG; i++)
		assert_int_equal(loads[CUDA_LANES_HIGH + i].out, 8 / CUDA_LANES_LONG);
}

static void test_chains_run_beside_each_other(void **state)
{
	struct lane_load loads[CUDA_LANES] = {{0}};

	(void)state;
	for (unsigned i = CUDA_LANES_HIGH; i < CUDA_LANES; i++) {
		unsigned lane = cuda_choose_lane(loads, CUDA_CHAIN);

		assert_int_equal(lane, i);
		loads[lane].out++;
		loads[lane].long_out++;
	}
	assert_in_range(cuda_choose_lane(loads, CUDA_SHORT), 0, CUDA_LANES_HIGH - 1);
}

static void test_of_equal_lanes_one_that_knows_the_run_is_taken(void **state)
{
	struct lane_load loads[CUDA_LANES] = {{0}};

	(void)state;
	loads[5].knows = true;
	assert_int_equal(cuda_choose_lane(loads, CUDA_CHAIN), 5);
	assert_int_equal(cuda_choose_lane(loads, CUDA_SHORT), 0); /* which that lane does not take */
	loads[5].out = 1;
	assert_int_equal(cuda_choose_lane(loads, CUDA_CHAIN), CUDA_LANES_HIGH);
}

static void test_a_chain_has_many_short_ops(void **state)
{
	(void)state;
	assert_int_equal(cuda_length_of(CUDA_LONG_US, 1), CUDA_SHORT);
	assert_int_equal(cuda_length_of(CUDA_LONG_US, 48), CUDA_SHORT);
	assert_int_equal(cuda_length_of(CUDA_LONG_US + 1, 1), CUDA_LONG);
	assert_int_equal(cuda_length_of(CUDA_LONG_US + 1, 48), CUDA_CHAIN);
	assert_int_equal(cuda_length_of(48 * CUDA_CHAIN_US, 48), CUDA_CHAIN);
	assert_int_equal(cuda_length_of(48 * CUDA_CHAIN_US + 1, 48), CUDA_LONG);
}

static void test_short_runs_do_not_wait_behind_long_ones(void **state)
{
	struct lane_load loads[CUDA_LANES] = {{0}};

	(void)state;
	loads[CUDA_LANES_HIGH] = (struct lane_load){1, 1, false};
	for (unsigned i = 0; i < 20; i++) {
		unsigned lane = cuda_choose_lane(loads, CUDA_SHORT);

		assert_in_range(lane, 0, CUDA_LANES_HIGH - 1);
		loads[lane].out++;
	}
	/* A queue that had runs on a lane of high priority may have put a long one there. */
	loads[0].long_out = 1;
	assert_int_equal(loads[cuda_choose_lane(loads, CUDA_SHORT)].long_out, 0);
}

/* Where long runs are everywhere, priority is what a short one has. */
static void test_a_short_run_takes_high_priority_at_last(void **state)
{
	struct lane_load loads[CUDA_LANES];

	(void)state;
	for (unsigned i = 0; i < CUDA_LANES; i++)
		loads[i] = (struct lane_load){1, 1, false};
	assert_in_range(cuda_choose_lane(loads, CUDA_SHORT), 0, CUDA_LANES_HIGH - 1);
}

static void test_a_long_run_waits_for_a_gap_only_while_memory_is_unpinned(void **state)
{
	struct cuda_gap gap = {.long_out = 2};

	(void)state;
	assert_false(cuda_gap_holds(&gap, 0, 1));
	gap.unpinning = 1;
	for (uint64_t now = 0; now < 100ull * CUDA_HELD_MOST_NS; now += CUDA_HELD_MOST_NS)
		assert_true(cuda_gap_holds(&gap, 0, now));
	gap.unpinning = 0;
	assert_false(cuda_gap_holds(&gap, 0, 1));
}

/* From when it could have started, or the last long run had ended, whichever was later. */
static void test_a_gap_does_not_last(void **state)
{
	const uint64_t from[][2] = {{1000, 0}, {0, 1000}, {1000, 990}};

	(void)state;
	for (unsigned i = 0; i < sizeof from / sizeof from[0]; i++) {
		struct cuda_gap gap = {.unpinning = 3, .drained_ns = from[i][0]};

		assert_true(cuda_gap_holds(&gap, from[i][1], 1000));
		assert_true(cuda_gap_holds(&gap, from[i][1], 1000 + CUDA_HELD_MOST_NS - 1));
		assert_false(cuda_gap_holds(&gap, from[i][1], 1000 + CUDA_HELD_MOST_NS));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_short_runs_use_lanes_of_long_ones_while_none_is_out),
	    cmocka_unit_test(test_long_runs_keep_off_lanes_of_high_priority),
	    cmocka_unit_test(test_chains_run_beside_each_other),
	    cmocka_unit_test(test_of_equal_lanes_one_that_knows_the_run_is_taken),
	    cmocka_unit_test(test_a_chain_has_many_short_ops),
	    cmocka_unit_test(test_short_runs_do_not_wait_behind_long_ones),
	    cmocka_unit_test(test_a_short_run_takes_high_priority_at_last),
	    cmocka_unit_test(test_a_long_run_waits_for_a_gap_only_while_memory_is_unpinned),
	    cmocka_unit_test(test_a_gap_does_not_last),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
