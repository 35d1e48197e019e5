/* test_lanes.c: which stream of a GPU a run goes to, cuda/choice.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cuda/choice.h"

static void test_short_runs_use_all_lanes_while_nothing_long_is_out(void **state)
{
	struct lane_load loads[CUDA_LANES] = {{0}};

	(void)state;
	for (unsigned i = 0; i < 3 * CUDA_LANES; i++) {
		unsigned lane = cuda_choose_lane(loads, false);

		assert_int_equal(lane, i % CUDA_LANES);
		loads[lane].out++;
	}
}

static void test_long_runs_keep_off_lanes_of_high_priority(void **state)
{
	struct lane_load loads[CUDA_LANES] = {{0}};

	(void)state;
	for (unsigned i = 0; i < 8; i++) {
		unsigned lane = cuda_choose_lane(loads, true);

		assert_in_range(lane, CUDA_LANES_HIGH, CUDA_LANES - 1);
		loads[lane].out++;
		loads[lane].long_out++;
	}
	for (unsigned i = CUDA_LANES_HIGH; i < CUDA_LANES; i++)
		assert_int_equal(loads[i].out, 8 / (CUDA_LANES - CUDA_LANES_HIGH));
}

static void test_short_runs_do_not_wait_behind_long_ones(void **state)
{
	struct lane_load loads[CUDA_LANES] = {{0}};

	(void)state;
	loads[CUDA_LANES_HIGH] = (struct lane_load){1, 1};
	for (unsigned i = 0; i < 20; i++) {
		unsigned lane = cuda_choose_lane(loads, false);

		assert_in_range(lane, 0, CUDA_LANES_HIGH - 1);
		loads[lane].out++;
	}
	/* A queue that had runs on a lane of high priority may have put a long one there. */
	loads[0].long_out = 1;
	assert_int_equal(loads[cuda_choose_lane(loads, false)].long_out, 0);
}

/* Where long runs are everywhere, priority is what a short one has. */
static void test_a_short_run_takes_high_priority_at_last(void **state)
{
	struct lane_load loads[CUDA_LANES];

	(void)state;
	for (unsigned i = 0; i < CUDA_LANES; i++)
		loads[i] = (struct lane_load){1, 1};
	assert_in_range(cuda_choose_lane(loads, false), 0, CUDA_LANES_HIGH - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_short_runs_use_all_lanes_while_nothing_long_is_out),
	    cmocka_unit_test(test_long_runs_keep_off_lanes_of_high_priority),
	    cmocka_unit_test(test_short_runs_do_not_wait_behind_long_ones),
	    cmocka_unit_test(test_a_short_run_takes_high_priority_at_last),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
