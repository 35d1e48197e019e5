/* Tests that what comes back from a device's thread is reported to the loop in slices, which users share. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "cpu/cpu.h"
#include "device/canary.h"
#include "device/device.h"
#include "plan/plan.h"
#include "share/turns.h"

enum { TASKS = 40 };
#define SLICE_NS      25000u
#define DONE_TAKES_NS (SLICE_NS / 4)

static struct turns turns;
static bool is_shared;
static unsigned executed, told; /* `executed` is atomic */

/* Replaces the real function, which forgets other users after a time that a busy machine can exceed. */
bool turns_are_shared(const struct turns *t, uint64_t now)
{
	(void)now;
	assert_ptr_equal(t, &turns);
	return is_shared;
}

static void execute(struct device_work *work, const struct driver *driver, struct device_state *dev)
{
	(void)work;
	(void)driver;
	(void)dev;
	__atomic_add_fetch(&executed, 1, __ATOMIC_SEQ_CST);
}

static void done(struct device_work *work)
{
	uint64_t until = clock_ns() + DONE_TAKES_NS;

	(void)work;
	while (clock_ns() < until)
		;
	told++;
}

static void run_until_idle(uv_loop_t *loop, const struct device *device)
{
	while (device->work_out)
		uv_run(loop, UV_RUN_ONCE);
}

static int open_with(uv_loop_t *loop, const struct driver *driver, struct device **ret_device,
                     char why[WHY_BYTES])
{
	uv_loop_init(loop);
	return device_open(loop, "cpu", driver, 0, &(struct driver_limits){.threads = 1}, ret_device, why);
}

/* Opens an idle device. */
static struct device *open_idle(uv_loop_t *loop, const struct driver *driver)
{
	struct device *device;
	char why[WHY_BYTES];

	assert_int_equal(open_with(loop, driver, &device, why), 0);
	uv_ref((uv_handle_t *)&device->woken); /* as a listener keeps the loop alive */
	run_until_idle(loop, device);
	return device;
}

static struct device *open_cpu(uv_loop_t *loop)
{
	return open_idle(loop, &driver_cpu);
}

static void close_cpu(uv_loop_t *loop, struct device *device)
{
	device_close(device);
	uv_run(loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(loop), 0);
}

/* Returns the most ends that were reported in a round of the loop. */
static unsigned tell(void)
{
	static struct device_work tasks[TASKS];
	uv_loop_t loop;
	struct device *device = open_cpu(&loop);
	unsigned most = 0;

	executed = told = 0;
	device->turns = &turns;
	for (unsigned i = 0; i < TASKS; i++) {
		tasks[i] = (struct device_work){.execute = execute, .done = done};
		device_submit(device, &tasks[i]);
	}
	while (__atomic_load_n(&executed, __ATOMIC_SEQ_CST) < TASKS)
		usleep(100);
	while (device->work_out) {
		unsigned before = told;

		uv_run(&loop, UV_RUN_ONCE);
		most = told - before > most ? told - before : most;
	}
	assert_int_equal(told, TASKS);
	close_cpu(&loop, device);
	return most;
}

static void test_the_loop_looks_up_between_slices(void **state)
{
	(void)state;
	is_shared = true;
	/* A round of the loop has at most two slices: from polling, and from being woken. */
	assert_in_range(tell(), 1, 2 * SLICE_NS / DONE_TAKES_NS);
}

static void test_one_user_is_told_all_at_once(void **state)
{
	(void)state;
	is_shared = false;
	assert_in_range(tell(), TASKS / 2, TASKS); /* a few may come late */
}

static int slack_ns;

static void ask_slack(struct device_work *work, const struct driver *driver, struct device_state *dev)
{
	(void)work;
	(void)driver;
	(void)dev;
	slack_ns = prctl(PR_GET_TIMERSLACK, 0ul, 0ul, 0ul, 0ul);
}

static void test_the_thread_ends_its_sleeps_on_time(void **state)
{
	uv_loop_t loop;
	struct device *device = open_cpu(&loop);
	struct device_work work = {.execute = ask_slack, .done = done};

	(void)state;
	slack_ns = 0;
	device_submit(device, &work);
	run_until_idle(&loop, device);
	assert_int_equal(slack_ns, 1);
	close_cpu(&loop, device);
}

/* The end of a short run is found by polling, if there are CPUs enough; otherwise by the eventfd. */
static void test_a_look_ends_what_is_through(void **state)
{
	uv_loop_t loop;
	struct device *device = open_cpu(&loop);
	struct run *run = canary_prepare(device->canary, "");
	struct device_work work = {.run = run, .done = done};

	(void)state;
	assert_int_equal(plan_run(device->planner, run), 0);
	run->plan_us = 1;
	for (unsigned may = 0; may < 2; may++) {
		told = 0;
		device->may_look_out = may;
		device_submit(device, &work);
		while (!device_thread_has_done(&device->thread))
			usleep(100);
		assert_int_equal(device_look(device), may);
		assert_int_equal(told, may);
		assert_false(device_look(device));
		run_until_idle(&loop, device);
		assert_int_equal(told, 1);
	}
	close_cpu(&loop, device);
}

static bool released; /* atomic */

static void wait_for_release(struct device_work *work, const struct driver *driver, struct device_state *dev)
{
	(void)work;
	(void)driver;
	(void)dev;
	while (!__atomic_load_n(&released, __ATOMIC_SEQ_CST))
		usleep(100);
}

static struct run *plan(const struct device *device, struct canary *canary, double us)
{
	struct run *run = canary_prepare(canary, "");

	assert_non_null(run);
	assert_int_equal(plan_run(device->planner, run), 0);
	run->plan_us = us;
	return run;
}

/* By the second thread, and by the loop: while the first thread is still at a long run. */
static void test_short_runs_are_computed_beside_a_long_one(void **state)
{
	uv_loop_t loop;
	struct device *device = open_cpu(&loop);
	struct canary *canary = canary_new(op_by_name("gemm"), KOPS_F64);
	struct device_work longer = {
	    .run = plan(device, device->canary, 1e6), .execute = wait_for_release, .done = done};
	struct device_work shorter = {.run = plan(device, canary, 10), .done = done, .beside = true};

	(void)state;
	told = 0;
	released = false;
	assert_false(device_has_room_beside(device, shorter.run)); /* beside what? */
	longer.run->plan_us = device->info->depth_us - 1;
	device_submit(device, &longer);
	assert_true(device_has_room(device)); /* soon */
	assert_false(device_has_room_beside(device, shorter.run));
	__atomic_store_n(&released, true, __ATOMIC_SEQ_CST);
	run_until_idle(&loop, device);

	told = 0;
	released = false;
	longer.run = plan(device, device->canary, 1e6);
	device_submit(device, &longer);
	assert_false(device_has_room(device));
	assert_false(device_is_full(device));
	assert_true(device_has_room_beside(device, shorter.run));
	shorter.run->plan_us = device->info->beside_us + 1;
	assert_false(device_has_room_beside(device, shorter.run));
	device_submit(device, &shorter);
	while (told == 0)
		uv_run(&loop, UV_RUN_ONCE);
	assert_true(canary_is_right(canary));

	shorter.run = plan(device, canary, 10);
	assert_true(device_run_now(device, &shorter));
	assert_int_equal(told, 2);
	assert_true(canary_is_right(canary));
	shorter.beside = false;
	assert_false(device_run_now(device, &shorter)); /* the first thread has the device */

	__atomic_store_n(&released, true, __ATOMIC_SEQ_CST);
	run_until_idle(&loop, device);
	assert_int_equal(told, 3);
	assert_true(canary_is_right(device->canary));
	assert_int_equal(device->runs_out + device->beside_out, 0);
	close_cpu(&loop, device);
	canary_free(canary);
}

static void test_there_are_few_beside(void **state)
{
	enum { FEW = 2 };
	uv_loop_t loop;
	struct device *device = open_cpu(&loop);
	struct device_work longer = {
	    .run = plan(device, device->canary, 1e6), .execute = wait_for_release, .done = done};
	struct device_work shorter[FEW];
	struct canary *canaries[FEW];

	(void)state;
	told = 0;
	released = false;
	assert_int_equal(device->info->depth, FEW);
	device_submit(device, &longer);
	for (unsigned i = 0; i < FEW; i++) {
		canaries[i] = canary_new(op_by_name("gemm"), KOPS_F64);
		shorter[i] = (struct device_work){.run = plan(device, canaries[i], 10),
		                                  .execute = wait_for_release,
		                                  .done = done,
		                                  .beside = true};
		assert_true(device_has_room_beside(device, shorter[i].run));
		device_submit(device, &shorter[i]);
	}
	assert_false(device_has_room_beside(device, shorter[0].run));
	assert_true(device_is_full(device));
	assert_false(device_run_now(device, &shorter[0])); /* the second thread has that state */
	__atomic_store_n(&released, true, __ATOMIC_SEQ_CST);
	run_until_idle(&loop, device);
	assert_int_equal(told, 1 + FEW);
	for (unsigned i = 0; i < FEW; i++) {
		assert_true(canary_is_right(canaries[i]));
		canary_free(canaries[i]);
	}
	close_cpu(&loop, device);
}

/* ---- Canaries that cannot be planned ---- */

static __thread bool lacks_kernels; /* the device's thread has them, and so tests them */

static const struct kernel_list *kernels_if_any(const struct op *op)
{
	static const struct kernel_list none;

	return lacks_kernels ? &none : driver_cpu.kernels(op);
}

static void test_a_canary_that_was_not_planned_is_no_fault(void **state)
{
	struct driver driver = driver_cpu;
	struct device *device;
	uv_loop_t loop;

	(void)state;
	driver.kernels = kernels_if_any;
	device = open_idle(&loop, &driver);
	for (unsigned i = 0; i < 2; i++) {
		assert_true(device_is_healthy(device, UINT64_MAX));
		lacks_kernels = true;
		device_start_canary(device);
		lacks_kernels = false;
		assert_false(device->canary_out);
		assert_false(device_is_healthy(device, UINT64_MAX));
		assert_null(device_fault(device));
		device_start_canary(device);
		run_until_idle(&loop, device);
	}
	close_cpu(&loop, device);
}

static void test_a_device_without_its_first_canary_is_not_opened(void **state)
{
	struct driver driver = driver_cpu;
	struct device *device = NULL;
	char why[WHY_BYTES] = "";
	uv_loop_t loop;

	(void)state;
	driver.kernels = kernels_if_any;
	lacks_kernels = true;
	assert_true(open_with(&loop, &driver, &device, why) < 0);
	lacks_kernels = false;
	assert_null(device);
	assert_string_not_equal(why, "");
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_the_loop_looks_up_between_slices),
	    cmocka_unit_test(test_one_user_is_told_all_at_once),
	    cmocka_unit_test(test_the_thread_ends_its_sleeps_on_time),
	    cmocka_unit_test(test_a_look_ends_what_is_through),
	    cmocka_unit_test(test_short_runs_are_computed_beside_a_long_one),
	    cmocka_unit_test(test_there_are_few_beside),
	    cmocka_unit_test(test_a_canary_that_was_not_planned_is_no_fault),
	    cmocka_unit_test(test_a_device_without_its_first_canary_is_not_opened)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
