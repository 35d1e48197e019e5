/*
 * Tests temperature and power of devices: a thread that may hang asks when somebody wants to know, at most once
 * a second.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../daemon/loop.h"
#include "base/clock.h"
#include "base/timers.h"
#include "session/sensing.h"

struct fixture {
	uv_loop_t loop;
	struct engine engine;
	struct config config;
	struct turns turns; /* nobody waits for a turn */
	struct account *account;
	struct device devices[2];
	struct timers timers;
	struct sensors sensors;
	unsigned told;
};

static unsigned n_asked; /* atomic; counted by worker threads */
static bool hangs;       /* atomic: the driver does not answer */

static void sense(const struct device_state *dev, struct device_sensors *ret)
{
	unsigned n = __atomic_add_fetch(&n_asked, 1, __ATOMIC_RELAXED);

	(void)dev;
	while (__atomic_load_n(&hangs, __ATOMIC_RELAXED))
		;
	ret->temperature_c = 40 + n;
	ret->power_w = 300;
}

static const struct driver can_tell = {.sense = sense}, cannot_tell = {0};

static void told(void *user)
{
	((struct fixture *)user)->told++;
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof *f);
	char why[WHY_BYTES];

	n_asked = 0;
	uv_loop_init(&f->loop);
	f->engine.accounts.config = &f->config;
	f->engine.accounts.sched = &f->engine.sched;
	f->engine.accounts.turns = &f->turns;
	f->devices[0].driver = &cannot_tell;
	f->devices[1].driver = &can_tell;
	f->engine.devices[0].device = &f->devices[0];
	f->engine.devices[1].device = &f->devices[1];
	f->engine.n_devices = 2;
	timers_init(&f->timers, &f->loop);
	f->engine.timers = &f->timers.loop;
	f->sensors.engine = &f->engine;
	f->sensors.done = told;
	f->sensors.user = f;
	sensors_init(&f->sensors);
	*state = f;
	if (workers_start(&f->loop, 1, 1, &f->engine.accounts.closers, why) < 0)
		return -1;
	f->account = accounts_get(&f->engine.accounts, 1001);
	return f->account ? 0 : -1;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	workers_stop(f->engine.accounts.closers);
	uv_close((uv_handle_t *)&f->sensors.late, NULL);
	uv_close((uv_handle_t *)&f->timers.poll, NULL);
	uv_close((uv_handle_t *)&f->timers.prepare, NULL);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	timers_close(&f->timers);
	assert_int_equal(uv_loop_close(&f->loop), 0);
	assert_int_equal(f->account->refs, 1); /* each question returned its reference */
	account_unref(&f->engine.accounts, f->account);
	accounts_clear(&f->engine.accounts);
	free(f);
	return 0;
}

static void refresh(struct fixture *f)
{
	sensors_refresh(&f->sensors, f->account);
}

static void run_until_told(struct fixture *f, unsigned times)
{
	while (f->told < times)
		uv_run(&f->loop, UV_RUN_ONCE);
}

static void only_devices_that_can_tell_are_asked(void **state)
{
	struct fixture *f = *state;

	assert_false(sensors_are_out(&f->sensors));
	refresh(f);
	assert_true(sensors_are_out(&f->sensors));
	run_until_told(f, 1);
	assert_false(sensors_are_out(&f->sensors));
	assert_int_equal(n_asked, 1);
	assert_true(f->sensors.of[1].latest.temperature_c == 41);
	assert_true(f->sensors.of[1].latest.power_w == 300);
	assert_int_equal(f->sensors.of[0].asked_ns, 0);
}

static void what_is_fresh_is_not_asked_again(void **state)
{
	struct fixture *f = *state;

	refresh(f);
	run_until_told(f, 1);
	f->sensors.of[1].asked_ns = clock_ns(); /* however long that took */
	refresh(f);
	assert_false(sensors_are_out(&f->sensors));
	f->sensors.of[1].asked_ns -= 1000000000u;
	refresh(f);
	run_until_told(f, 2);
	assert_int_equal(n_asked, 2);
	assert_true(f->sensors.of[1].latest.temperature_c == 42);
}

/* Nobody waits for it for more than a second, and it is not asked again meanwhile. */
static void a_driver_may_hang(void **state)
{
	struct fixture *f = *state;

	hangs = true;
	refresh(f);
	f->sensors.of[1].asked_ns = clock_ns() - 1000000000u;
	assert_false(sensors_are_out(&f->sensors));
	refresh(f);
	__atomic_store_n(&hangs, false, __ATOMIC_RELAXED);
	run_until_told(f, 1);
	assert_int_equal(n_asked, 1);
	assert_true(f->sensors.of[1].latest.temperature_c == 41);
}

/* Waiting clients are told, even if nobody asks again. */
static void the_second_ends_by_itself(void **state)
{
	struct fixture *f = *state;

	hangs = true;
	refresh(f);
	run_until_told(f, 1);
	assert_false(sensors_are_out(&f->sensors));
	assert_true(f->sensors.of[1].is_out);
	__atomic_store_n(&hangs, false, __ATOMIC_RELAXED);
	run_until_told(f, 2);
	assert_false(f->sensors.of[1].is_out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(only_devices_that_can_tell_are_asked, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(what_is_fresh_is_not_asked_again, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(a_driver_may_hang, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(the_second_ends_by_itself, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
