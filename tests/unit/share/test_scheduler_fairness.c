/* Tests what a user could try to get more of a device than its share. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "share/scheduler.h"

#define CPU 0u
#define GPU 1u

static struct sched_job job(double cost_us, kops_priority priority)
{
	return (struct sched_job){.cost_us = cost_us, .priority = priority, .device = CPU};
}

static struct sched_job *run_one(struct sched *s)
{
	struct sched_job *j = sched_next(s, CPU, NULL);

	if (j)
		sched_finish(s, j);
	return j;
}

struct two {
	struct sched s;
	struct sched_flow honest, sly;
	struct sched_queue honest_queue, sly_queue, sly_other;
	struct sched_job work[2];
};

static void open_two(struct two *t)
{
	*t = (struct two){0};
	t->honest_queue.flow = &t->honest;
	t->sly_queue.flow = t->sly_other.flow = &t->sly;
}

/* The honest user always has work; n of its jobs run. */
static void honest_works(struct two *t, int n)
{
	for (int i = 0; i < 2; i++) {
		t->work[i] = job(10, KOPS_NORMAL);
		sched_add(&t->s, &t->honest_queue, &t->work[i]);
	}
	for (int i = 0; i < n; i++) {
		struct sched_job *j = run_one(&t->s);
		assert_ptr_equal(j->queue, &t->honest_queue);
		sched_add(&t->s, j->queue, j);
	}
}

/* Returns how many of the next 40 jobs are the sly user's, who has 40 waiting. */
static int sly_bursts(struct two *t)
{
	static struct sched_job burst[40];
	int mine = 0;

	for (int i = 0; i < 40; i++) {
		burst[i] = job(10, KOPS_NORMAL);
		sched_add(&t->s, &t->sly_queue, &burst[i]);
	}
	for (int i = 0; i < 40; i++) {
		struct sched_job *j = run_one(&t->s);
		mine += j->queue != &t->honest_queue;
		if (j->queue == &t->honest_queue)
			sched_add(&t->s, j->queue, j);
	}
	return mine;
}

static void test_a_waiting_low_job_saves_nothing(void **state)
{
	struct sched_job parked = job(10, KOPS_LOW);
	struct two t;

	(void)state;
	open_two(&t);
	sched_add(&t.s, &t.sly_other, &parked);
	honest_works(&t, 1000);
	assert_in_range(sly_bursts(&t), 19, 22);
}

static void test_a_blocked_job_saves_nothing(void **state)
{
	struct sched_job parked = job(10, KOPS_NORMAL);
	struct two t;

	(void)state;
	open_two(&t);
	parked.blocked = true;
	sched_add(&t.s, &t.sly_other, &parked);
	honest_works(&t, 1000);
	assert_in_range(sly_bursts(&t), 19, 22);
}

/* Time that the estimate did not foresee is charged too. */
static void test_what_jobs_really_took_counts(void **state)
{
	struct sched_job a[2], b[2];
	double honest_us = 0, sly_us = 0;
	struct two t;

	(void)state;
	open_two(&t);
	for (int i = 0; i < 2; i++) {
		a[i] = job(10, KOPS_NORMAL);
		b[i] = job(10, KOPS_NORMAL);
		sched_add(&t.s, &t.honest_queue, &a[i]);
		sched_add(&t.s, &t.sly_queue, &b[i]);
	}
	for (int i = 0; i < 1000; i++) {
		struct sched_job *j = sched_next(&t.s, CPU, NULL);
		bool sly = j->queue == &t.sly_queue;
		j->took_us = sly ? 200 : 10;
		*(sly ? &sly_us : &honest_us) += j->took_us;
		sched_finish(&t.s, j);
		sched_add(&t.s, j->queue, j);
	}
	assert_true(fabs(honest_us - sly_us) <= 400);
}

/* A plan that is too long must not cost a user its share. */
static void test_a_quick_job_costs_what_it_took(void **state)
{
	struct sched_job a = job(100, KOPS_NORMAL);
	struct two t;

	(void)state;
	open_two(&t);
	sched_add(&t.s, &t.honest_queue, &a);
	assert_ptr_equal(sched_next(&t.s, CPU, NULL), &a);
	a.took_us = 1;
	sched_finish(&t.s, &a);
	assert_true(t.honest.devices[CPU].party.vtime == 1);
}

static void test_rounding_leaves_no_backlog(void **state)
{
	struct sched_job big = job(1e20, KOPS_NORMAL), small[64];
	struct two t;

	(void)state;
	open_two(&t);
	sched_add(&t.s, &t.honest_queue, &big);
	for (int i = 0; i < 64; i++) {
		small[i] = job(9000, KOPS_NORMAL);
		sched_add(&t.s, &t.honest_queue, &small[i]);
	}
	while (run_one(&t.s))
		;
	assert_true(t.s.devices[CPU].backlog_us == 0);
}

/* One user fills the device; for the others it is full only by their own share. */
static void test_a_full_device_has_room_for_others(void **state)
{
	struct sched_job a[10], b[6];
	struct two t;

	(void)state;
	open_two(&t);
	for (int i = 0; i < 10; i++) {
		assert_false(sched_is_full(&t.s, &t.sly, CPU, 95));
		a[i] = job(10, KOPS_NORMAL);
		sched_add(&t.s, &t.sly_queue, &a[i]);
	}
	assert_true(sched_is_full(&t.s, &t.sly, CPU, 95));
	assert_false(sched_is_full(&t.s, &t.sly, GPU, 95));
	for (int i = 0; i < 5; i++) {
		assert_false(sched_is_full(&t.s, &t.honest, CPU, 95));
		b[i] = job(10, KOPS_NORMAL);
		sched_add(&t.s, &t.honest_queue, &b[i]);
	}
	assert_true(sched_is_full(&t.s, &t.honest, CPU, 95));
	assert_true(sched_is_full(&t.s, &t.sly, CPU, 95));
	while (run_one(&t.s))
		;
	assert_false(sched_is_full(&t.s, &t.sly, CPU, 95));
	assert_true(t.sly.devices[CPU].backlog_us == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_a_waiting_low_job_saves_nothing),
	    cmocka_unit_test(test_a_blocked_job_saves_nothing),
	    cmocka_unit_test(test_what_jobs_really_took_counts),
	    cmocka_unit_test(test_a_quick_job_costs_what_it_took),
	    cmocka_unit_test(test_rounding_leaves_no_backlog),
	    cmocka_unit_test(test_a_full_device_has_room_for_others),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
