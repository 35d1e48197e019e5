/* Tests errands: they are done in pieces, in their user's turns, and none is lost or done twice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "share/errands.h"
#include "unit/daemon/loop.h"
#include "unit/daemon/simulated_clock.h"

enum { MANY = 1000, STEP_NS = 1000 /* for errands and for others' turns */ };

struct counted {
	struct errand errand;
	unsigned left, done;
	struct counted *adds; /* added by its last step; NULL: none */
};

struct fixture {
	uv_loop_t loop;
	struct turns turns;
	struct turns_user user, other;
	struct errands errands;
	struct turns_waiter others; /* with a datagram at each look */
	unsigned others_turns;
};

static struct fixture *fixture; /* steps get only their errand */

static bool step(struct errand *errand)
{
	struct counted *c = (struct counted *)errand;

	assert_null(errand->step); /* it is not out now, and may be added again */
	c->done++;
	simulated_ns += STEP_NS;
	if (--c->left > 0)
		return true;
	if (c->adds)
		errands_add(&fixture->errands, &c->adds->errand, step);
	return false;
}

static bool take_others(struct turns_waiter *waiter)
{
	(void)waiter;
	fixture->others_turns++;
	simulated_ns += STEP_NS;
	return true;
}

static void unwatch(struct turns_waiter *waiter)
{
	(void)waiter;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof *f);

	uv_loop_init(&f->loop);
	turns_init(&f->turns, &f->loop, take_others, unwatch);
	uv_ref((uv_handle_t *)&f->turns.check);
	errands_init(&f->errands, &f->turns, &f->user);
	f->others.user = &f->other;
	*state = fixture = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	turns_leave(&f->others);
	close_loop(&f->loop);
	free(f);
	return 0;
}

static void run_until_done(struct fixture *f)
{
	while (!list_is_empty(&f->errands.waiting))
		uv_run(&f->loop, UV_RUN_NOWAIT);
}

static void a_turn_has_few_steps(void **state)
{
	struct fixture *f = *state;
	struct counted c = {.left = MANY};
	unsigned turns = 0;

	errands_add(&f->errands, &c.errand, step);
	for (unsigned before = 0; c.left > 0; before = c.done, turns++) {
		f->turns.began_ns = UINT64_MAX / 2; /* so that turns do not end by time */
		assert_true(f->errands.waiter.take(&f->errands.waiter) || c.left == 0);
		assert_in_range(c.done - before, 1, ERRANDS_STEPS);
	}
	assert_int_equal(c.done, MANY);
	assert_int_equal(turns, (MANY + ERRANDS_STEPS - 1) / ERRANDS_STEPS);
}

static void where_time_is_up_a_turn_has_one_step(void **state)
{
	struct fixture *f = *state;
	struct counted c = {.left = 2};

	errands_add(&f->errands, &c.errand, step);
	f->turns.began_ns = 0;
	assert_true(f->errands.waiter.take(&f->errands.waiter));
	assert_int_equal(c.done, 1);
	run_until_done(f);
	assert_int_equal(c.done, 2);
}

static void others_have_turns_meanwhile(void **state)
{
	struct fixture *f = *state;
	struct counted c = {.left = MANY};

	errands_add(&f->errands, &c.errand, step);
	turns_wait(&f->turns, &f->others);
	run_until_done(f);
	assert_int_equal(c.done, MANY);
	assert_in_range(f->others_turns, 2, UINT32_MAX);
	assert_true(f->user.party.vtime > 0);
}

static void they_go_round(void **state)
{
	struct fixture *f = *state;
	struct counted first = {.left = MANY}, second = {.left = 2};

	errands_add(&f->errands, &first.errand, step);
	errands_add(&f->errands, &second.errand, step);
	f->turns.began_ns = UINT64_MAX / 2;
	f->errands.waiter.take(&f->errands.waiter);
	assert_int_equal(second.left, 0);
	run_until_done(f);
}

/* The waiter then waits for a turn that has nothing to do any more. */
static void one_may_be_added_by_the_last_step(void **state)
{
	struct fixture *f = *state;
	struct counted second = {.left = 1}, first = {.left = 1, .adds = &second};

	errands_add(&f->errands, &first.errand, step);
	for (unsigned i = 0; i < 3; i++)
		uv_run(&f->loop, UV_RUN_NOWAIT);
	assert_int_equal(first.done + second.done, 2);
	assert_null(turns_are_wanted(&f->turns));
}

static void a_held_user_waits_but_at_the_stop(void **state)
{
	struct fixture *f = *state;
	struct counted c = {.left = MANY};

	turns_hold(&f->user, TURNS_CLOSING);
	errands_add(&f->errands, &c.errand, step);
	for (unsigned i = 0; i < 3; i++)
		uv_run(&f->loop, UV_RUN_NOWAIT);
	assert_int_equal(c.done, 0);
	errands_finish(&f->errands);
	assert_int_equal(c.done, MANY);
	turns_release(&f->turns, &f->user, TURNS_CLOSING);
	assert_null(turns_are_wanted(&f->turns));
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(a_turn_has_few_steps),
	    TEST(where_time_is_up_a_turn_has_one_step),
	    TEST(others_have_turns_meanwhile),
	    TEST(they_go_round),
	    TEST(one_may_be_added_by_the_last_step),
	    TEST(a_held_user_waits_but_at_the_stop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
