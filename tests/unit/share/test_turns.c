/*
 * Tests users' turns at the loop: shares by time, order within a user, and who is charged for the loop's work.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "share/turns.h"
#include "unit/daemon/loop.h"
#include "unit/daemon/simulated_clock.h"

enum { TURNS = 200, LONG_NS = 20000, SHORT_NS = 5000 };

/* A session with a given number of datagrams, which each take a given time to read. */
struct reader {
	struct turns_waiter waiter;
	unsigned left, taken;
	uint64_t takes_ns;
};

struct fixture {
	uv_loop_t loop;
	struct turns turns;
	struct turns_user quick, slow;
	struct reader readers[3]; /* of quick, quick and slow */
	bool paid, others_paid;
	struct turns_user *pays_too; /* charged too for each turn; NULL: nobody */
	struct turns_user *holds;    /* the user whom each turn holds; NULL: nobody */
	struct turns_waiter *brings; /* the waiter that the next turn brings anew; NULL: none */
};

static struct fixture *fixture; /* turns pass only waiters */

static bool take(struct turns_waiter *waiter)
{
	struct reader *r = (struct reader *)waiter;
	struct turns_user *other = waiter->user == &fixture->quick ? &fixture->slow : &fixture->quick;

	fixture->paid = turns_pays(&fixture->turns, waiter->user);
	fixture->others_paid |= turns_pays(&fixture->turns, other);
	simulated_ns += r->takes_ns;
	if (fixture->pays_too)
		turns_charge(&fixture->turns, fixture->pays_too);
	if (fixture->holds)
		turns_hold(fixture->holds, TURNS_CLOSING);
	if (fixture->brings)
		turns_wait_anew(&fixture->turns, fixture->brings);
	fixture->brings = NULL;
	r->taken++;
	return --r->left > 0;
}

static void unwatch(struct turns_waiter *waiter)
{
	(void)waiter;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof *f);

	uv_loop_init(&f->loop);
	turns_init(&f->turns, &f->loop, take, unwatch);
	uv_ref((uv_handle_t *)&f->turns.check); /* as a listener keeps the loop alive */
	for (unsigned i = 0; i < 3; i++)
		f->readers[i] = (struct reader){.waiter.user = i < 2 ? &f->quick : &f->slow,
		                                .takes_ns = i < 2 ? SHORT_NS : LONG_NS};
	*state = fixture = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	close_loop(&f->loop);
	free(f);
	return 0;
}

static void wait_with(struct fixture *f, unsigned i, unsigned datagrams)
{
	f->readers[i].left = datagrams;
	turns_wait(&f->turns, &f->readers[i].waiter);
}

/* Runs until every turn of the reader was taken. */
static void run_until_read(struct fixture *f, unsigned i)
{
	while (f->readers[i].left > 0)
		uv_run(&f->loop, UV_RUN_NOWAIT);
}

static void users_share_by_time(void **state)
{
	struct fixture *f = *state;

	wait_with(f, 0, TURNS);
	wait_with(f, 2, TURNS);
	run_until_read(f, 0);
	/* A user may be ahead by one turn. */
	assert_in_range(f->readers[2].taken, TURNS * SHORT_NS / LONG_NS / 2, TURNS * SHORT_NS / LONG_NS * 2);
}

/* Idle time gives no credit: otherwise a user who comes back would have the loop alone. */
static void who_was_away_has_saved_up_nothing(void **state)
{
	struct fixture *f = *state;

	wait_with(f, 0, 2 * TURNS);
	while (f->readers[0].taken < TURNS)
		uv_run(&f->loop, UV_RUN_NOWAIT);
	wait_with(f, 2, TURNS / 8);
	run_until_read(f, 2);
	assert_in_range(f->readers[0].taken, TURNS + 1, 2 * TURNS);
}

/* A new user goes before one that always has more, but only as far as shares stay the same. */
static void who_comes_anew_goes_first(void **state)
{
	const unsigned most = TURNS_AHEAD_NS / SHORT_NS;
	struct fixture *f = *state;
	unsigned first = 0, at_first = 0; /* counts in a quarter of the possible turns */

	wait_with(f, 2, TURNS);
	uv_run(&f->loop, UV_RUN_NOWAIT);
	for (unsigned i = 0; i < 2 * most; i++) {
		unsigned before = f->readers[2].taken;

		wait_with(f, 0, 1);
		run_until_read(f, 0);
		first += before == f->readers[2].taken;
		if (i + 1 == most / 4)
			at_first = first;
	}
	assert_int_equal(at_first, most / 4);
	assert_in_range(first, at_first, 2 * most - 1);
	assert_in_range(f->readers[2].taken, 2, 1 + most * SHORT_NS / LONG_NS * 2);
	assert_in_range(f->quick.party.vtime - f->turns.users.clock, 0, 2 * TURNS_AHEAD_NS);
}

/* A connection that its user's own door accepted does so. */
static void who_brings_something_new_goes_first(void **state)
{
	struct fixture *f = *state;
	unsigned before;

	wait_with(f, 2, TURNS);
	uv_run(&f->loop, UV_RUN_NOWAIT);
	before = f->readers[2].taken;
	f->readers[0].takes_ns = 3 * LONG_NS; /* more than the other has had */
	f->readers[1].left = 1;
	f->brings = &f->readers[1].waiter;
	wait_with(f, 0, 1);
	run_until_read(f, 1);
	assert_int_equal(f->readers[0].taken, 1);
	assert_int_equal(f->readers[2].taken, before);
}

/* Otherwise a user who connects again and again, with a thousand waiting sessions, would always go first. */
static void who_brings_more_of_the_same_does_not_go_first(void **state)
{
	struct fixture *f = *state;

	wait_with(f, 0, TURNS);
	wait_with(f, 2, TURNS);
	for (unsigned i = 0; i < 4; i++)
		uv_run(&f->loop, UV_RUN_NOWAIT);
	assert_false(f->quick.is_new);
	f->readers[1].left = 1;
	turns_wait_anew(&f->turns, &f->readers[1].waiter);
	assert_false(f->quick.is_new);
}

/* A user who always has more is never new, however few its sessions are. */
static void who_goes_on_does_not_go_first(void **state)
{
	struct fixture *f = *state;

	wait_with(f, 0, TURNS);
	wait_with(f, 2, TURNS);
	for (unsigned i = 0; i < 10; i++) {
		uv_run(&f->loop, UV_RUN_NOWAIT);
		assert_int_equal(f->quick.is_new + f->slow.is_new, i == 0);
	}
}

/* The loop does not poll for it meanwhile either. */
static void who_is_held_gets_no_turn(void **state)
{
	struct fixture *f = *state;

	wait_with(f, 0, 2);
	turns_hold(&f->quick, TURNS_CLOSING);
	wait_with(f, 1, 2);
	wait_with(f, 2, 2);
	run_until_read(f, 2);
	uv_run(&f->loop, UV_RUN_NOWAIT);
	assert_false(uv_is_active((uv_handle_t *)&f->turns.idle));
	assert_true(list_is_empty(&f->turns.watched));
	turns_leave(&f->readers[0].waiter);
	assert_int_equal(f->readers[0].taken + f->readers[1].taken, 0);
	turns_release(&f->turns, &f->quick, TURNS_CLOSING);
	run_until_read(f, 1);
	assert_int_equal(f->readers[0].taken, 0);
	assert_int_equal(f->readers[1].taken, 2);
}

/* A turn itself may hold the user. */
static void who_is_held_in_a_turn_goes_on_later(void **state)
{
	struct fixture *f = *state;

	f->holds = &f->quick;
	wait_with(f, 0, 3);
	for (unsigned i = 0; i < 5; i++)
		uv_run(&f->loop, UV_RUN_NOWAIT);
	assert_int_equal(f->readers[0].taken, 1);
	f->holds = NULL;
	turns_release(&f->turns, &f->quick, TURNS_CLOSING);
	run_until_read(f, 0);
	assert_int_equal(f->readers[0].taken, 3);
}

static void sessions_of_a_user_go_round(void **state)
{
	struct fixture *f = *state;

	wait_with(f, 0, TURNS);
	wait_with(f, 1, TURNS);
	run_until_read(f, 0);
	assert_in_range(f->readers[1].taken, TURNS - 1, TURNS);
}

/* Returns the number of turns in one round of the loop. */
static unsigned turns_of_a_round(struct fixture *f)
{
	unsigned before = f->readers[0].taken + f->readers[2].taken;

	uv_run(&f->loop, UV_RUN_NOWAIT);
	return f->readers[0].taken + f->readers[2].taken - before;
}

static void the_loop_looks_up_less_often_for_one_user(void **state)
{
	struct fixture *f = *state;
	unsigned most = 0;

	wait_with(f, 0, TURNS);
	wait_with(f, 2, 1);
	while (f->readers[2].left > 0)
		assert_int_equal(turns_of_a_round(f), 1);
	for (unsigned i = 0, n; i < TURNS / 4; i++) {
		n = turns_of_a_round(f);
		if (simulated_ns - f->turns.alone_since_ns < TURNS_ALONE_NS)
			assert_int_equal(n, 1); /* the other user may come back */
	}
	f->turns.alone_since_ns -= TURNS_ALONE_NS;
	while (f->readers[0].left > 0) {
		unsigned n = turns_of_a_round(f);

		assert_in_range(n, 1, TURNS_SLICE_NS / SHORT_NS);
		most = n > most ? n : most;
	}
	assert_in_range(most, 2, TURNS_SLICE_NS / SHORT_NS);
}

enum { FINDS = 4 };
static unsigned looks, found;

static bool look(struct turns *turns)
{
	(void)turns;
	looks++;
	return found < FINDS && ++found;
}

/* Returns the number of looks in one round of the loop. */
static unsigned looks_when_alone_since(struct fixture *f, uint64_t ns)
{
	looks = found = 0;
	f->turns.look = look;
	f->turns.alone_since_ns = ns;
	uv_run(&f->loop, UV_RUN_NOWAIT);
	f->turns.look = NULL;
	return looks;
}

static void one_user_is_looked_after_again_where_there_was_something(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(looks_when_alone_since(f, simulated_ns - TURNS_ALONE_NS), FINDS + 1);
	assert_int_equal(looks_when_alone_since(f, simulated_ns), 1);
}

/* A user can be midway in only one thing, whatever else waits. */
static void who_is_midway_goes_on_first(void **state)
{
	struct fixture *f = *state;

	wait_with(f, 0, TURNS);
	f->readers[1].waiter.midway = true;
	wait_with(f, 1, TURNS);
	run_until_read(f, 1);
	assert_int_equal(f->readers[0].taken, 0);
	run_until_read(f, 0);
	assert_int_equal(f->readers[0].taken, TURNS);
}

static void a_turn_is_paid_by_its_user_alone(void **state)
{
	struct fixture *f = *state;

	assert_true(turns_pays(&f->turns, &f->quick)); /* nobody waits */
	wait_with(f, 0, 2);
	assert_false(turns_pays(&f->turns, &f->quick)); /* its own turn has not come */
	assert_false(turns_pays(&f->turns, &f->slow));
	run_until_read(f, 0);
	assert_true(f->paid);
	assert_false(f->others_paid);
	assert_true(turns_pays(&f->turns, &f->slow));
}

/* Connections that the door accepts are charged so. */
static void a_turn_can_be_another_users_expense_too(void **state)
{
	struct fixture *f = *state;

	wait_with(f, 0, 3);
	f->pays_too = &f->slow;
	run_until_read(f, 0);
	assert_true(f->slow.party.vtime >= 3 * SHORT_NS);
	assert_true(f->quick.party.vtime >= f->slow.party.vtime);
}

/* Otherwise it would be no charge: a user who comes back begins where the others are. */
static void work_for_a_user_who_is_behind_is_charged_in_full(void **state)
{
	struct fixture *f = *state;

	wait_with(f, 0, TURNS);
	run_until_read(f, 0);
	assert_true(f->turns.users.clock > SHORT_NS);
	turns_add(&f->turns, &f->slow, SHORT_NS);
	assert_int_equal(f->slow.party.vtime, f->turns.users.clock + SHORT_NS);
	assert_true(turns_is_ahead(&f->turns, &f->slow));
}

static void nobody_pays_twice(void **state)
{
	struct fixture *f = *state;

	f->readers[0].takes_ns = 1000000;
	f->pays_too = &f->quick;
	wait_with(f, 0, 3);
	run_until_read(f, 0);
	assert_int_equal(f->quick.party.vtime, 3000000);
}

static void a_waiter_that_leaves_gets_no_turn(void **state)
{
	struct fixture *f = *state;

	wait_with(f, 0, 1);
	wait_with(f, 2, 1);
	turns_leave(&f->readers[0].waiter);
	run_until_read(f, 2);
	assert_int_equal(f->readers[0].taken, 0);
}

static bool bring(struct turns *turns)
{
	turns_wait(turns, &fixture->readers[0].waiter);
	return false;
}

/* A look found more than the turns of one round. */
static void the_loop_does_not_sleep_while_one_waits(void **state)
{
	struct fixture *f = *state;

	f->readers[0].takes_ns = TURNS_SLICE_NS;
	f->readers[0].left = 2;
	f->turns.look = bring;
	uv_run(&f->loop, UV_RUN_NOWAIT);
	f->turns.look = NULL;
	assert_int_equal(f->readers[0].left, 1);
	assert_int_equal(uv_backend_timeout(&f->loop), 0);
	run_until_read(f, 0);
	assert_int_equal(uv_backend_timeout(&f->loop), -1);
}

/* The loop wakes up when anybody comes, and polls no longer than anybody is there. */
static void the_loop_sleeps_while_nobody_waits(void **state)
{
	struct fixture *f = *state;

	uv_run(&f->loop, UV_RUN_NOWAIT);
	assert_int_not_equal(uv_backend_timeout(&f->loop), 0);
	wait_with(f, 2, TURNS);
	assert_int_equal(uv_backend_timeout(&f->loop), 0);
	uv_run(&f->loop, UV_RUN_NOWAIT);
	assert_int_equal(f->readers[2].taken, 1);
	turns_leave(&f->readers[2].waiter);
	uv_run(&f->loop, UV_RUN_NOWAIT);
	assert_int_not_equal(uv_backend_timeout(&f->loop), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(users_share_by_time, setup, teardown),
	    cmocka_unit_test_setup_teardown(who_was_away_has_saved_up_nothing, setup, teardown),
	    cmocka_unit_test_setup_teardown(who_comes_anew_goes_first, setup, teardown),
	    cmocka_unit_test_setup_teardown(who_brings_something_new_goes_first, setup, teardown),
	    cmocka_unit_test_setup_teardown(who_brings_more_of_the_same_does_not_go_first, setup, teardown),
	    cmocka_unit_test_setup_teardown(who_goes_on_does_not_go_first, setup, teardown),
	    cmocka_unit_test_setup_teardown(who_is_held_gets_no_turn, setup, teardown),
	    cmocka_unit_test_setup_teardown(who_is_held_in_a_turn_goes_on_later, setup, teardown),
	    cmocka_unit_test_setup_teardown(sessions_of_a_user_go_round, setup, teardown),
	    cmocka_unit_test_setup_teardown(the_loop_looks_up_less_often_for_one_user, setup, teardown),
	    cmocka_unit_test_setup_teardown(one_user_is_looked_after_again_where_there_was_something, setup,
	                                    teardown),
	    cmocka_unit_test_setup_teardown(who_is_midway_goes_on_first, setup, teardown),
	    cmocka_unit_test_setup_teardown(a_turn_is_paid_by_its_user_alone, setup, teardown),
	    cmocka_unit_test_setup_teardown(a_turn_can_be_another_users_expense_too, setup, teardown),
	    cmocka_unit_test_setup_teardown(work_for_a_user_who_is_behind_is_charged_in_full, setup, teardown),
	    cmocka_unit_test_setup_teardown(nobody_pays_twice, setup, teardown),
	    cmocka_unit_test_setup_teardown(the_loop_does_not_sleep_while_one_waits, setup, teardown),
	    cmocka_unit_test_setup_teardown(the_loop_sleeps_while_nobody_waits, setup, teardown),
	    cmocka_unit_test_setup_teardown(a_waiter_that_leaves_gets_no_turn, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
