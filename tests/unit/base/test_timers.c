/* Timers on a loop of their own: on time, in order, and the outer loop sleeps without a timeout. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/timers.h"
#include "unit/daemon/loop.h"

enum { SHORT_MS = 20, LONG_MS = 60 };

struct alarm {
	uv_timer_t timer;
	unsigned fired;
	uint64_t fired_ns; /* when it last fired */
};

struct fixture {
	uv_loop_t outer;
	struct timers timers;
	struct alarm a, b;
	unsigned closed;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof *f);

	assert_int_equal(uv_loop_init(&f->outer), 0);
	assert_int_equal(timers_init(&f->timers, &f->outer), 0);
	uv_ref((uv_handle_t *)&f->timers.poll); /* as a listener keeps the loop alive */
	uv_timer_init(&f->timers.loop, &f->a.timer);
	uv_timer_init(&f->timers.loop, &f->b.timer);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	uv_walk(&f->timers.loop, close_handle, NULL);
	close_loop(&f->outer);
	timers_close(&f->timers);
	free(f);
	return 0;
}

static void on_alarm(uv_timer_t *timer)
{
	struct alarm *alarm = (struct alarm *)timer;

	alarm->fired++;
	alarm->fired_ns = clock_ns();
}

static void start(struct alarm *alarm, unsigned ms, unsigned repeat_ms)
{
	timers_start(&alarm->timer, on_alarm, ms, repeat_ms);
}

static void sleep_ms(unsigned ms)
{
	nanosleep(&(struct timespec){.tv_nsec = (long)ms * 1000000}, NULL);
}

/* Loops are precise to a millisecond, which may have begun already. */
static void assert_lasted(uint64_t began_ns, uint64_t fired_ns, unsigned ms)
{
	assert_true(fired_ns - began_ns >= (ms - 1) * 1000000ull);
}

static void test_fires_while_the_loop_sleeps(void **state)
{
	struct fixture *f = *state;
	uint64_t began = clock_ns();

	start(&f->a, SHORT_MS, 0);
	uv_run(&f->outer, UV_RUN_NOWAIT);
	assert_int_equal(uv_backend_timeout(&f->outer), -1);
	while (!f->a.fired)
		uv_run(&f->outer, UV_RUN_ONCE);
	assert_lasted(began, f->a.fired_ns, SHORT_MS);
	sleep_ms(SHORT_MS * 2);
	uv_run(&f->outer, UV_RUN_NOWAIT);
	assert_int_equal(f->a.fired, 1);
}

static void test_counts_from_its_start(void **state)
{
	struct fixture *f = *state;
	uint64_t began;

	start(&f->b, SHORT_MS, 0);
	while (!f->b.fired)
		uv_run(&f->outer, UV_RUN_ONCE);
	sleep_ms(LONG_MS); /* as the loop does, without telling the inner one */
	began = clock_ns();
	start(&f->a, SHORT_MS, 0);
	while (!f->a.fired)
		uv_run(&f->outer, UV_RUN_ONCE);
	assert_lasted(began, f->a.fired_ns, SHORT_MS);
}

static void test_earlier_one_comes_first(void **state)
{
	struct fixture *f = *state;
	uint64_t began = clock_ns();

	start(&f->b, LONG_MS, 0);
	uv_run(&f->outer, UV_RUN_NOWAIT);
	start(&f->a, SHORT_MS, 0);
	while (!f->b.fired)
		uv_run(&f->outer, UV_RUN_ONCE);
	assert_int_equal(f->a.fired, 1);
	assert_true(f->a.fired_ns < f->b.fired_ns);
	assert_lasted(began, f->b.fired_ns, LONG_MS);
}

static void test_stopped_one_does_not_fire(void **state)
{
	struct fixture *f = *state;
	uint64_t began = clock_ns();

	start(&f->a, SHORT_MS, 0);
	uv_run(&f->outer, UV_RUN_NOWAIT);
	uv_timer_stop(&f->a.timer);
	start(&f->b, LONG_MS, 0);
	while (!f->b.fired)
		uv_run(&f->outer, UV_RUN_ONCE);
	assert_int_equal(f->a.fired, 0);
	assert_lasted(began, f->b.fired_ns, LONG_MS);
}

static void test_repeats(void **state)
{
	struct fixture *f = *state;
	uint64_t began = clock_ns();

	start(&f->a, SHORT_MS, SHORT_MS);
	while (f->a.fired < 3)
		uv_run(&f->outer, UV_RUN_ONCE);
	assert_lasted(began, f->a.fired_ns, 3 * SHORT_MS);
}

static void test_what_is_due_is_done_before_the_loop_sleeps(void **state)
{
	struct fixture *f = *state;

	start(&f->a, 0, 0);
	uv_run(&f->outer, UV_RUN_NOWAIT);
	assert_int_equal(f->a.fired, 1);
}

static void on_closed(uv_handle_t *handle)
{
	((struct fixture *)handle->data)->closed++;
}

static void test_tells_of_closing_before_the_loop_sleeps(void **state)
{
	struct fixture *f = *state;
	uv_timer_t third;

	start(&f->a, LONG_MS, 0);
	uv_timer_init(&f->timers.loop, &third);
	third.data = f;
	uv_close((uv_handle_t *)&third, on_closed);
	uv_run(&f->outer, UV_RUN_NOWAIT);
	assert_int_equal(f->closed, 1);
	assert_int_equal(f->a.fired, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_fires_while_the_loop_sleeps, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_counts_from_its_start, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_earlier_one_comes_first, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_stopped_one_does_not_fire, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_repeats, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_what_is_due_is_done_before_the_loop_sleeps, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_tells_of_closing_before_the_loop_sleeps, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
