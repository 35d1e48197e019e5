/* Tests worker threads: turns, and which user yields to which. Uses a real loop. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "share/workers.h"

enum { CROWD = 8, STEP_US = 50, MANY_STEPS = 1000 };

struct work {
	struct task task;
	unsigned steps; /* atomic: steps so far */
	unsigned steps_wanted;
	bool done;
};

struct fixture {
	uv_loop_t loop;
	struct workers *workers;
	struct task_flow crowds, others;
	struct work crowd[CROWD], other; /* more than the largest number of threads */
};

static struct work *of_task(struct task *task)
{
	return (struct work *)((char *)task - offsetof(struct work, task));
}

static bool held; /* atomic: no step ends */

static bool step(struct task *task)
{
	struct work *w = of_task(task);
	unsigned n;

	usleep(STEP_US);
	n = __atomic_add_fetch(&w->steps, 1, __ATOMIC_RELAXED);
	while (__atomic_load_n(&held, __ATOMIC_RELAXED))
		usleep(STEP_US);
	return n == w->steps_wanted;
}

static void done(struct task *task)
{
	of_task(task)->done = true;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof *f);
	char why[WHY_BYTES];

	uv_loop_init(&f->loop);
	assert_int_equal(workers_start(&f->loop, workers_by_cpus(2), workers_by_cpus(2), &f->workers, why), 0);
	*state = f;
	return 0;
}

static void run(struct fixture *f)
{
	while (workers_are_busy(f->workers))
		uv_run(&f->loop, UV_RUN_ONCE);
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	run(f);
	workers_stop(f->workers);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&f->loop), 0);
	free(f);
	return 0;
}

static void submit(struct fixture *f, struct work *w, struct task_flow *flow, unsigned steps)
{
	*w = (struct work){.task = {.step = step, .done = done}, .steps_wanted = steps};
	workers_submit(f->workers, flow, &w->task);
}

static unsigned steps_of_crowd(const struct fixture *f)
{
	unsigned n = 0;

	for (unsigned i = 0; i < CROWD; i++)
		n += __atomic_load_n(&f->crowd[i].steps, __ATOMIC_RELAXED);
	return n;
}

/* The loop does not run meanwhile, so what a thread has done ends with its turn. */
static void wait_for_end_of_turns(const struct fixture *f)
{
	unsigned before;

	do {
		before = steps_of_crowd(f);
		usleep(20000);
	} while (steps_of_crowd(f) != before);
}

/* Each thread ends its current step only; a whole turn would have about ten. */
static void a_turn_ends_when_another_user_comes(void **state)
{
	struct fixture *f = *state;
	unsigned n, threads = 0;

	for (unsigned i = 0; i < CROWD; i++)
		submit(f, &f->crowd[i], &f->crowds, MANY_STEPS);
	submit(f, &f->other, &f->others, 1);
	n = steps_of_crowd(f);
	wait_for_end_of_turns(f);
	for (unsigned i = 0; i < CROWD; i++)
		threads += __atomic_load_n(&f->crowd[i].steps, __ATOMIC_RELAXED) > 0;
	assert_in_range(steps_of_crowd(f) - n, 0, threads);
	while (!f->other.done)
		uv_run(&f->loop, UV_RUN_ONCE);
	for (unsigned i = 0; i < CROWD; i++)
		workers_cancel(&f->crowd[i].task);
}

static void a_task_goes_on_until_it_is_through(void **state)
{
	struct fixture *f = *state;

	submit(f, &f->other, &f->others, 100);
	run(f);
	assert_true(f->other.done);
	assert_false(f->other.task.cancelled);
	assert_int_equal(f->other.steps, 100);
}

static void a_cancelled_task_stops_after_the_step_at_hand(void **state)
{
	struct fixture *f = *state;

	submit(f, &f->other, &f->others, MANY_STEPS);
	while (__atomic_load_n(&f->other.steps, __ATOMIC_RELAXED) == 0)
		usleep(STEP_US);
	workers_cancel(&f->other.task);
	run(f);
	assert_true(f->other.done);
	assert_true(f->other.task.cancelled);
	assert_true(f->other.steps < MANY_STEPS);
}

/* The first thread exists; up to three others start while it is busy. */
static void threads_come_as_they_are_needed(void **state)
{
	struct fixture f = {0};
	char why[WHY_BYTES];
	(void)state;

	uv_loop_init(&f.loop);
	assert_int_equal(workers_start(&f.loop, 1, 3, &f.workers, why), 0);
	__atomic_store_n(&held, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < CROWD; i++)
		submit(&f, &f.crowd[i], &f.crowds, 1);
	while (steps_of_crowd(&f) < 3)
		usleep(STEP_US);
	usleep(20000);
	assert_int_equal(steps_of_crowd(&f), 3);
	__atomic_store_n(&held, false, __ATOMIC_RELAXED);
	run(&f);
	assert_int_equal(steps_of_crowd(&f), CROWD);
	workers_stop(f.workers);
	uv_run(&f.loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&f.loop), 0);
}

#ifndef KOPS_SANITIZE /* sanitizers need address space */
/*
 * A thread has no stack while there is no room, and is started when there is. This test is first, since stacks
 * are kept.
 */
static void a_thread_that_could_not_be_started_is_started_later(void **state)
{
	struct fixture f = {0};
	struct rlimit before, none;
	char why[WHY_BYTES];
	(void)state;

	uv_loop_init(&f.loop);
	assert_int_equal(workers_start(&f.loop, 1, 2, &f.workers, why), 0);
	__atomic_store_n(&held, true, __ATOMIC_RELAXED);
	submit(&f, &f.crowd[0], &f.crowds, 1);
	while (steps_of_crowd(&f) < 1)
		usleep(STEP_US);
	getrlimit(RLIMIT_AS, &before);
	none = (struct rlimit){.rlim_cur = 1, .rlim_max = before.rlim_max};
	setrlimit(RLIMIT_AS, &none);
	submit(&f, &f.crowd[1], &f.crowds, 1);
	setrlimit(RLIMIT_AS, &before);
	usleep(20000);
	assert_int_equal(steps_of_crowd(&f), 1);
	submit(&f, &f.crowd[2], &f.crowds, 1);
	for (unsigned i = 0; i < 10000 && steps_of_crowd(&f) < 2; i++)
		usleep(1000);
	assert_int_equal(steps_of_crowd(&f), 2);
	__atomic_store_n(&held, false, __ATOMIC_RELAXED);
	run(&f);
	workers_stop(f.workers);
	uv_run(&f.loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&f.loop), 0);
}
#else
static void a_thread_that_could_not_be_started_is_started_later(void **state)
{
	(void)state;
	skip();
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_thread_that_could_not_be_started_is_started_later),
	    cmocka_unit_test_setup_teardown(a_turn_ends_when_another_user_comes, setup, teardown),
	    cmocka_unit_test_setup_teardown(a_task_goes_on_until_it_is_through, setup, teardown),
	    cmocka_unit_test_setup_teardown(a_cancelled_task_stops_after_the_step_at_hand, setup, teardown),
	    cmocka_unit_test(threads_come_as_they_are_needed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
