/*
 * Tests users with slow sockets: the time of such calls counts a hundredfold, beyond what is forgiven at once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../daemon/loop.h"
#include "../daemon/simulated_clock.h"
#include "share/slow.h"

#define MS 1000000u

struct fixture {
	uv_loop_t loop;
	struct turns turns;
	struct sched sched;
	struct config config;
	struct accounts accounts;
	struct slow slow;
	struct account *account, *other;
};

static bool take(struct turns_waiter *waiter)
{
	(void)waiter;
	return false;
}

static void unwatch(struct turns_waiter *waiter)
{
	(void)waiter;
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof *f);

	log_set_level(LOG_LEVEL_ERROR);
	uv_loop_init(&f->loop);
	turns_init(&f->turns, &f->loop, take, unwatch);
	f->accounts = (struct accounts){.config = &f->config, .sched = &f->sched, .turns = &f->turns};
	slow_init(&f->slow, &f->loop, &f->accounts);
	f->account = accounts_get(&f->accounts, 1001);
	f->other = accounts_get(&f->accounts, 1002);
	*state = f;
	return f->account && f->other ? 0 : -1;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	close_loop(&f->loop);
	account_unref(&f->accounts, f->account);
	account_unref(&f->accounts, f->other);
	accounts_clear(&f->accounts);
	free(f);
	return 0;
}

/* Simulates a call on a socket of the user. The simulated clock is the CPU's too. */
static void call(struct fixture *f, struct account *account, uint64_t takes_ns)
{
	struct slow_call began;

	f->turns.latest = &f->other->turns; /* another user is about, who has to wait */
	f->turns.began_ns = f->turns.alone_since_ns = simulated_ns;
	began = slow_begin(account, simulated_ns);
	simulated_ns += takes_ns;
	slow_end(&f->slow, account, &began);
}

/* A quick user is not suspected, so nobody asks for CPU time. */
static void quick_calls_count_for_nothing(void **state)
{
	struct fixture *f = *state;

	for (unsigned i = 0; i < 1000; i++)
		call(f, f->account, SLOW_NS - 1);
	assert_int_equal(f->account->suspected_until_ns, 0);
	assert_int_equal(f->account->slow_until_ns, 0);
	assert_false(slow_is_held(f->account));
}

/* The first call that seems long only raises suspicion, for a hundred times as long. */
static void the_first_is_not_measured(void **state)
{
	struct fixture *f = *state;

	call(f, f->account, 10 * MS);
	assert_int_equal(f->account->suspected_until_ns, simulated_ns + 1000 * MS);
	assert_int_equal(f->account->slow_until_ns, 0);
	simulated_ns += 1001u * MS;
	call(f, f->account, 10 * MS);
	assert_int_equal(f->account->slow_until_ns, 0);
}

/* 20 ms are forgiven; then the user waits for a hundred times the excess. */
static void who_is_slow_waits(void **state)
{
	struct fixture *f = *state;
	uint64_t held_until;

	call(f, f->account, 10 * MS);
	call(f, f->account, 10 * MS);
	call(f, f->account, 10 * MS);
	assert_false(slow_is_held(f->account));
	call(f, f->account, 10 * MS);
	assert_true(slow_is_held(f->account));
	assert_false(slow_is_held(f->other));
	assert_true(uv_is_active((uv_handle_t *)&f->slow.timer));
	held_until = f->account->slow_until_ns - 2000u * MS;
	assert_true(held_until > simulated_ns + 900u * MS);
	assert_true(held_until <= simulated_ns + 1000u * MS);
	simulated_ns = held_until - MS;
	uv_run(&f->loop, UV_RUN_NOWAIT);
	assert_true(slow_is_held(f->account));
	simulated_ns = held_until + 20 * MS;
	uv_run(&f->loop, UV_RUN_NOWAIT);
	assert_false(slow_is_held(f->account));
	assert_false(uv_is_active((uv_handle_t *)&f->slow.timer));
}

static void who_is_alone_delays_nobody(void **state)
{
	struct fixture *f = *state;

	for (unsigned i = 0; i < 100; i++) {
		struct slow_call began;

		f->turns.latest = &f->account->turns;
		f->turns.began_ns = simulated_ns;
		f->turns.alone_since_ns = 0;
		simulated_ns += 100 * MS; /* in its own turns */
		began = slow_begin(f->account, simulated_ns);
		simulated_ns += 10 * MS;
		slow_end(&f->slow, f->account, &began);
	}
	assert_int_equal(f->account->slow_until_ns, 0);
	assert_false(slow_is_held(f->account));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(quick_calls_count_for_nothing, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(the_first_is_not_measured, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(who_is_slow_waits, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(who_is_alone_delays_nobody, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
