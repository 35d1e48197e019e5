/* Tests which job runs next. The functions are pure, so the tests play the device. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "seed.h"
#include "share/scheduler.h"

#define CPU 0u
#define GPU 1u

#define assert_near(a, b, tolerance) assert_true(fabs((a) - (b)) <= (tolerance))

static struct sched_job job(double cost_us, kops_priority priority, unsigned device)
{
	return (struct sched_job){.cost_us = cost_us, .priority = priority, .device = device};
}

/* Starts and finishes the next job of a device; NULL if none may run. */
static struct sched_job *run_one(struct sched *s, unsigned device)
{
	struct sched_job *j = sched_next(s, device, NULL);

	if (j)
		sched_finish(s, j);
	return j;
}

static void assert_empty(const struct sched *s)
{
	assert_true(list_is_empty(&s->flows));
	for (unsigned d = 0; d < SCHED_DEVICES_MAX; d++) {
		assert_int_equal(s->devices[d].waiting, 0);
		assert_int_equal(s->devices[d].load, 0);
		assert_near(s->devices[d].backlog_us, 0.0, 1e-6);
	}
}

static void test_one_queue_is_in_order(void **state)
{
	struct sched s = {0};
	struct sched_flow f = {0};
	struct sched_queue q = {.flow = &f};
	struct sched_job jobs[5];

	(void)state;
	for (int i = 0; i < 5; i++) {
		jobs[i] = job(10 - i, i % 2 ? KOPS_HIGH : KOPS_LOW, CPU);
		sched_add(&s, &q, &jobs[i]);
	}
	for (int i = 0; i < 5; i++)
		assert_ptr_equal(run_one(&s, CPU), &jobs[i]);
	assert_null(run_one(&s, CPU));
	assert_empty(&s);
}

/* Plays the device for two flows that always have work, and returns their device time. NULL: no setting. */
static void share_as(const uint64_t *share_a, const uint64_t *share_b, double cost_a, double cost_b, int rounds,
                     double *ret_a, double *ret_b)
{
	struct sched s = {0};
	struct sched_flow fa = {.share = share_a}, fb = {.share = share_b};
	struct sched_queue qa = {.flow = &fa}, qb = {.flow = &fb};
	struct sched_job a[2], b[2];

	*ret_a = *ret_b = 0;
	for (int i = 0; i < 2; i++) {
		a[i] = job(cost_a, KOPS_NORMAL, CPU);
		b[i] = job(cost_b, KOPS_NORMAL, CPU);
		sched_add(&s, &qa, &a[i]);
		sched_add(&s, &qb, &b[i]);
	}
	for (int i = 0; i < rounds; i++) {
		struct sched_job *j = run_one(&s, CPU);
		assert_non_null(j);
		*(j->queue == &qa ? ret_a : ret_b) += j->cost_us;
		sched_add(&s, j->queue, j);
	}
}

static void share(double cost_a, double cost_b, int rounds, double *ret_a, double *ret_b)
{
	share_as(NULL, NULL, cost_a, cost_b, rounds, ret_a, ret_b);
}

static void test_flows_share_by_cost(void **state)
{
	static const double costs[][2] = {{1, 1}, {1, 10}, {10, 1}, {3, 7}, {1, 1000}};
	double a, b;

	(void)state;
	for (size_t i = 0; i < sizeof costs / sizeof costs[0]; i++) {
		double larger = costs[i][0] > costs[i][1] ? costs[i][0] : costs[i][1];
		share(costs[i][0], costs[i][1], 20000, &a, &b);
		/* The classic bound: they differ by at most one job of each. */
		assert_near(a, b, costs[i][0] + costs[i][1] + larger);
	}
}

static void test_shares_are_in_proportion(void **state)
{
	static const double costs[][2] = {{1, 1}, {1, 10}, {10, 1}, {3, 7}};
	static const uint64_t shares[][2] = {{100, 100}, {300, 100}, {1, 7}, {10000, 100}};
	double a, b;

	(void)state;
	for (size_t i = 0; i < sizeof costs / sizeof costs[0]; i++)
		for (size_t j = 0; j < sizeof shares / sizeof shares[0]; j++) {
			double of_a = (double)shares[j][0], of_b = (double)shares[j][1];

			share_as(&shares[j][0], &shares[j][1], costs[i][0], costs[i][1], 20000, &a, &b);
			assert_near(a / of_a, b / of_b, 2 * (costs[i][0] / of_a + costs[i][1] / of_b));
		}
	share_as(&shares[1][0], NULL, 2, 2, 20000, &a, &b); /* a user without a setting has 100 */
	assert_near(a, 3 * b, 12);
}

/* What was charged at one rate is not given back at another. */
static void test_a_share_may_change_while_a_job_is_out(void **state)
{
	uint64_t share = 1;
	struct sched s = {0};
	struct sched_flow flow = {.share = &share};
	struct sched_queue q = {.flow = &flow};
	struct sched_job a = job(100, KOPS_NORMAL, CPU), b = job(100, KOPS_NORMAL, CPU);

	(void)state;
	sched_add(&s, &q, &a);
	sched_add(&s, &q, &b);
	assert_ptr_equal(sched_next(&s, CPU, NULL), &a);
	share = 10000;
	a.took_us = 100;
	sched_finish(&s, &a);
	assert_near(flow.devices[CPU].party.vtime, 100 * 100.0, 1e-6);
	assert_ptr_equal(sched_next(&s, CPU, NULL), &b);
	b.took_us = 50;
	share = 1;
	sched_finish(&s, &b);
	assert_near(flow.devices[CPU].party.vtime, 100 * 100.0 + 50 * 0.01, 1e-6);
	assert_empty(&s);
}

static void test_the_background_waits_for_low(void **state)
{
	const uint64_t none = 0;
	struct sched s = {0};
	struct sched_flow back = {.share = &none}, other = {.share = &none}, low = {0};
	struct sched_queue q_back = {.flow = &back}, q_other = {.flow = &other}, q_low = {.flow = &low};
	struct sched_job b[2] = {job(100, KOPS_HIGH, CPU), job(100, KOPS_NORMAL, CPU)};
	struct sched_job o = job(100, KOPS_LOW, CPU), l = job(1, KOPS_LOW, CPU);

	(void)state;
	for (int i = 0; i < 2; i++)
		sched_add(&s, &q_back, &b[i]);
	assert_ptr_equal(sched_next(&s, CPU, NULL), &b[0]);
	sched_add(&s, &q_other, &o);
	assert_true(sched_yields_after_us(&s, &b[0]) < INFINITY); /* the background shares its time */
	sched_add(&s, &q_low, &l);
	assert_near(sched_yields_after_us(&s, &b[0]), SCHED_SLICE_MIN_US, 1e-9);
	sched_finish(&s, &b[0]);
	assert_ptr_equal(sched_next(&s, CPU, NULL), &l);
	assert_true(isinf(sched_yields_after_us(&s, &l)));
	sched_finish(&s, &l);
	assert_ptr_equal(run_one(&s, CPU), &o); /* the other flow has had nothing */
	assert_ptr_equal(run_one(&s, CPU), &b[1]);
	assert_empty(&s);
}

static void test_a_larger_share_is_interrupted_later(void **state)
{
	const uint64_t shares[] = {400, 25};

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct sched s = {0};
		struct sched_flow fa = {.share = &shares[i]}, fb = {0};
		struct sched_queue qa = {.flow = &fa}, qb = {.flow = &fb};
		struct sched_job first = job(1000, KOPS_NORMAL, CPU), a = job(1e6, KOPS_NORMAL, CPU),
		                 b = job(1e5, KOPS_NORMAL, CPU);

		sched_add(&s, &qb, &first);
		sched_add(&s, &qb, &b);
		assert_ptr_equal(sched_next(&s, CPU, NULL), &first);
		sched_add(&s, &qa, &a); /* at the clock, 0; b's user has had 1000 us */
		sched_finish(&s, &first);
		assert_ptr_equal(sched_next(&s, CPU, NULL), &a);
		assert_near(sched_yields_after_us(&s, &a), 1000 * (double)shares[i] / 100, 1e-6);
		sched_finish(&s, &a);
		assert_ptr_equal(run_one(&s, CPU), &b);
		assert_empty(&s);
	}
}

static void test_idling_saves_nothing(void **state)
{
	struct sched s = {0};
	struct sched_flow fa = {0}, fb = {0};
	struct sched_queue qa = {.flow = &fa}, qb = {.flow = &fb};
	struct sched_job a[100], b[100];
	int from_b = 0;

	(void)state;
	for (int i = 0; i < 100; i++) {
		a[i] = job(1, KOPS_NORMAL, CPU);
		b[i] = job(1, KOPS_NORMAL, CPU);
		sched_add(&s, &qa, &a[i]);
	}
	for (int i = 0; i < 50; i++)
		assert_non_null(run_one(&s, CPU));
	for (int i = 0; i < 100; i++)
		sched_add(&s, &qb, &b[i]);
	for (int i = 0; i < 20; i++)
		from_b += run_one(&s, CPU)->queue == &qb;
	assert_in_range(from_b, 9, 11);
}

static void test_a_flow_that_had_more_is_ahead(void **state)
{
	struct sched s = {0};
	struct sched_flow fa = {0}, fb = {0};
	struct sched_queue qa = {.flow = &fa}, qb = {.flow = &fb};
	struct sched_job a = job(100, KOPS_NORMAL, CPU),
	                 b[2] = {job(1, KOPS_NORMAL, CPU), job(1, KOPS_NORMAL, CPU)};

	(void)state;
	sched_add(&s, &qa, &a);
	sched_add(&s, &qb, &b[0]);
	sched_add(&s, &qb, &b[1]);
	assert_ptr_equal(run_one(&s, CPU), &a);
	assert_true(sched_flow_is_ahead(&s, &fa));
	assert_false(sched_flow_is_ahead(&s, &fb));
	assert_ptr_equal(run_one(&s, CPU), &b[0]);
	assert_true(sched_flow_is_ahead(&s, &fa));
	/* Nobody else has work, so there is nobody to be ahead of. */
	assert_ptr_equal(run_one(&s, CPU), &b[1]);
	assert_false(sched_flow_is_ahead(&s, &fa));
	sched_add(&s, &qb, &b[0]);
	sched_add(&s, &qa, &a);
	assert_ptr_equal(run_one(&s, CPU), &b[0]);
}

static void test_high_counts_within_its_flow_only(void **state)
{
	struct sched s = {0};
	struct sched_flow fa = {0}, fb = {0};
	struct sched_queue a1 = {.flow = &fa}, a2 = {.flow = &fa}, b1 = {.flow = &fb};
	struct sched_job normal = job(1, KOPS_NORMAL, CPU), high[20], other[20];
	int from_b = 0;

	(void)state;
	sched_add(&s, &a1, &normal);
	for (int i = 0; i < 20; i++) {
		high[i] = job(1, KOPS_HIGH, CPU);
		other[i] = job(1, KOPS_NORMAL, CPU);
		sched_add(&s, &b1, &other[i]);
		sched_add(&s, &a2, &high[i]);
	}
	for (int i = 0; i < 20; i++) {
		struct sched_job *j = run_one(&s, CPU);
		assert_ptr_not_equal(j, &normal);
		from_b += j->queue == &b1;
	}
	assert_in_range(from_b, 9, 11);
}

static void test_low_waits_for_every_flow(void **state)
{
	struct sched s = {0};
	struct sched_flow fa = {0}, fb = {0};
	struct sched_queue qa = {.flow = &fa}, qb = {.flow = &fb};
	struct sched_job low = job(1, KOPS_LOW, CPU), other[50];

	(void)state;
	sched_add(&s, &qa, &low);
	for (int i = 0; i < 50; i++) {
		other[i] = job(100, KOPS_NORMAL, CPU);
		sched_add(&s, &qb, &other[i]);
	}
	for (int i = 0; i < 50; i++)
		assert_ptr_equal(run_one(&s, CPU), &other[i]);
	assert_ptr_equal(run_one(&s, CPU), &low);
	assert_empty(&s);
}

static void test_priorities_of_one_flow(void **state)
{
	struct sched s = {0};
	struct sched_flow f = {0};
	static const kops_priority order[] = {KOPS_LOW,    KOPS_NORMAL, KOPS_HIGH,
	                                      KOPS_NORMAL, KOPS_HIGH,   KOPS_LOW};
	static const int expected[] = {2, 4, 1, 3, 0, 5};
	struct sched_queue q[6];
	struct sched_job jobs[6];

	(void)state;
	for (int i = 0; i < 6; i++) {
		q[i] = (struct sched_queue){.flow = &f};
		jobs[i] = job(1, order[i], CPU);
		sched_add(&s, &q[i], &jobs[i]);
	}
	for (int i = 0; i < 6; i++)
		assert_ptr_equal(run_one(&s, CPU), &jobs[expected[i]]);
}

static void test_a_queue_stays_on_its_device_while_it_runs(void **state)
{
	struct sched s = {0};
	struct sched_flow f = {0};
	struct sched_queue q = {.flow = &f};
	struct sched_job first = job(1, KOPS_NORMAL, GPU), same = job(1, KOPS_NORMAL, GPU),
	                 other = job(1, KOPS_NORMAL, CPU);

	(void)state;
	assert_int_equal(sched_queue_device(&q), -1);
	sched_add(&s, &q, &first);
	sched_add(&s, &q, &same);
	assert_int_equal(sched_queue_device(&q), GPU);
	sched_add(&s, &q, &other);
	assert_int_equal(sched_queue_device(&q), CPU);
	assert_near(q.backlog_us, 3, 1e-9);
	assert_null(sched_next(&s, CPU, NULL));
	assert_ptr_equal(sched_next(&s, GPU, NULL), &first);
	/* The device keeps a lane in order, so the next job may follow there. */
	assert_ptr_equal(sched_next(&s, GPU, NULL), &same);
	assert_null(sched_next(&s, GPU, NULL));
	assert_null(sched_next(&s, CPU, NULL));
	sched_finish(&s, &first);
	assert_null(sched_next(&s, CPU, NULL));
	sched_finish(&s, &same);
	assert_ptr_equal(sched_next(&s, CPU, NULL), &other);
	assert_int_equal(sched_queue_device(&q), CPU);
	sched_finish(&s, &other);
	assert_int_equal(sched_queue_device(&q), -1);
	assert_near(q.backlog_us, 0, 0);
	assert_empty(&s);
}

/* Otherwise it would run before the rest of that job. */
static void test_nothing_of_a_queue_follows_a_job_that_may_pause(void **state)
{
	struct sched s = {0};
	struct sched_flow f = {0};
	struct sched_queue q = {.flow = &f};
	struct sched_job first = job(1, KOPS_NORMAL, GPU), large = job(100, KOPS_NORMAL, GPU),
	                 behind = job(1, KOPS_NORMAL, GPU);

	(void)state;
	large.may_pause = true;
	sched_add(&s, &q, &first);
	sched_add(&s, &q, &large);
	sched_add(&s, &q, &behind);
	assert_ptr_equal(sched_next(&s, GPU, NULL), &first);
	assert_ptr_equal(sched_next(&s, GPU, NULL), &large);
	assert_null(sched_next(&s, GPU, NULL));
	sched_finish(&s, &first);
	assert_null(sched_next(&s, GPU, NULL));
	large.took_us = 50;
	sched_pause(&s, &large, 50);
	assert_ptr_equal(sched_next(&s, GPU, NULL), &large);
	assert_null(sched_next(&s, GPU, NULL));
	sched_finish(&s, &large);
	assert_ptr_equal(run_one(&s, GPU), &behind);
	assert_empty(&s);
}

/* The device has no order for it. */
static void test_nothing_of_a_queue_follows_a_job_beside_others(void **state)
{
	struct sched s = {0};
	struct sched_flow f = {0};
	struct sched_queue q = {.flow = &f};
	struct sched_job beside = job(1, KOPS_NORMAL, CPU), behind = job(1, KOPS_NORMAL, CPU);

	(void)state;
	beside.beside = true;
	sched_add(&s, &q, &beside);
	sched_add(&s, &q, &behind);
	assert_ptr_equal(sched_next(&s, CPU, NULL), &beside);
	assert_null(sched_next(&s, CPU, NULL));
	sched_finish(&s, &beside);
	assert_ptr_equal(run_one(&s, CPU), &behind);
	assert_empty(&s);
}

/* What a flow got out of turn counts as its own: it waits for another that comes later. */
static void test_what_starts_out_of_turn_is_charged(void **state)
{
	struct sched s = {0};
	struct sched_flow fa = {0}, fb = {0};
	struct sched_queue own = {.flow = &fa}, qa = {.flow = &fa}, qb = {.flow = &fb};
	struct sched_job tile = job(1000, KOPS_NORMAL, GPU), a = job(10, KOPS_NORMAL, GPU),
	                 b = job(10, KOPS_NORMAL, GPU);

	(void)state;
	sched_start_now(&s, &own, &tile);
	assert_int_equal(s.devices[GPU].load, 1);
	assert_int_equal(s.devices[GPU].waiting, 0);
	assert_near(s.devices[GPU].backlog_us, 1000, 1e-6);
	sched_add(&s, &qa, &a);
	sched_add(&s, &qb, &b);
	assert_ptr_equal(run_one(&s, GPU), &b);
	assert_true(fa.devices[GPU].party.vtime - fb.devices[GPU].party.vtime > 900);
	tile.took_us = 5;
	sched_finish(&s, &tile);
	assert_true(fa.devices[GPU].party.vtime - fb.devices[GPU].party.vtime < 100);
	assert_ptr_equal(run_one(&s, GPU), &a);
	assert_empty(&s);
}

static void test_a_blocked_head_holds_its_queue_only(void **state)
{
	struct sched s = {0};
	struct sched_flow f = {0};
	struct sched_queue q1 = {.flow = &f}, q2 = {.flow = &f};
	struct sched_job blocked = job(1, KOPS_HIGH, CPU), behind = job(1, KOPS_HIGH, CPU),
	                 other = job(1, KOPS_LOW, CPU);

	(void)state;
	blocked.blocked = true;
	sched_add(&s, &q1, &blocked);
	sched_add(&s, &q1, &behind);
	sched_add(&s, &q2, &other);
	assert_ptr_equal(run_one(&s, CPU), &other);
	assert_null(run_one(&s, CPU));
	sched_unblock(&s, &blocked);
	assert_ptr_equal(run_one(&s, CPU), &blocked);
	assert_ptr_equal(run_one(&s, CPU), &behind);
	assert_empty(&s);
}

/*
 * A paused job is charged for what it took. It continues when the other has had as much, and before later jobs
 * of its queue.
 */
static void test_a_paused_job_gives_way_and_goes_on(void **state)
{
	struct sched s = {0};
	struct sched_flow fa = {0}, fb = {0};
	struct sched_queue qa = {.flow = &fa}, qb = {.flow = &fb};
	struct sched_job large = job(1000, KOPS_NORMAL, CPU), behind = job(1, KOPS_NORMAL, CPU), b[4];

	(void)state;
	large.may_pause = true;
	sched_add(&s, &qa, &large);
	sched_add(&s, &qa, &behind);
	assert_ptr_equal(sched_next(&s, CPU, NULL), &large);
	assert_true(isinf(sched_yields_after_us(&s, &large)));
	for (int i = 0; i < 4; i++) {
		b[i] = job(20, KOPS_NORMAL, CPU);
		sched_add(&s, &qb, &b[i]);
	}
	assert_near(sched_yields_after_us(&s, &large), SCHED_SLICE_MIN_US, 1e-9);
	large.took_us = 50;
	sched_pause(&s, &large, 950);
	assert_near(s.devices[CPU].backlog_us, 950 + 1 + 4 * 20, 1e-9);
	assert_near(qa.backlog_us, 950 + 1, 1e-9);
	for (int i = 0; i < 3; i++)
		assert_ptr_equal(run_one(&s, CPU), &b[i]);
	assert_ptr_equal(sched_next(&s, CPU, NULL), &large);
	assert_near(sched_yields_after_us(&s, &large), SCHED_SLICE_MIN_US, 1e-9);
	/* What is left of a running job is independent of what it is charged. */
	sched_progress(&s, &large, 300);
	assert_near(s.devices[CPU].backlog_us, 300 + 1 + 20, 1e-9);
	assert_near(qa.backlog_us, 300 + 1, 1e-9);
	assert_near(fa.devices[CPU].party.vtime, 50 + 950, 1e-9);
	sched_progress(&s, &large, 0);
	sched_finish(&s, &large);
	assert_ptr_equal(run_one(&s, CPU), &b[3]);
	assert_ptr_equal(run_one(&s, CPU), &behind);
	assert_empty(&s);
}

/* A short job does not wait for long; between long ones an early change is not worth it. */
static void test_a_slice_is_as_long_as_the_job_that_waits(void **state)
{
	static const struct {
		double next_us, slice_us;
	} cases[] = {{1, SCHED_SLICE_MIN_US}, {100, 100}, {1e6, SCHED_SLICE_US}};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct sched s = {0};
		struct sched_flow fa = {0}, fb = {0};
		struct sched_queue qa = {.flow = &fa}, qb = {.flow = &fb};
		struct sched_job long_one = job(1e6, KOPS_NORMAL, CPU),
		                 next = job(cases[i].next_us, KOPS_NORMAL, CPU);

		sched_add(&s, &qa, &long_one);
		assert_ptr_equal(sched_next(&s, CPU, NULL), &long_one);
		sched_add(&s, &qb, &next);
		assert_near(sched_yields_after_us(&s, &long_one), cases[i].slice_us, 1e-9);
		sched_finish(&s, &long_one);
		sched_remove(&s, &next);
		assert_empty(&s);
	}
}

/* Long jobs of one user alternate, queue by queue. */
static void test_queues_of_one_flow_take_turns(void **state)
{
	struct sched s = {0};
	struct sched_flow f = {0};
	struct sched_queue q[3] = {{.flow = &f}, {.flow = &f}, {.flow = &f}};
	struct sched_job jobs[3], behind = job(1, KOPS_NORMAL, CPU);

	(void)state;
	for (int i = 0; i < 3; i++) {
		jobs[i] = job(1e6, KOPS_NORMAL, CPU);
		sched_add(&s, &q[i], &jobs[i]);
	}
	sched_add(&s, &q[0], &behind);
	for (int i = 0; i < 9; i++) {
		struct sched_job *started = sched_next(&s, CPU, NULL);
		assert_ptr_equal(started, &jobs[i % 3]);
		assert_near(sched_yields_after_us(&s, started), SCHED_QUEUE_SLICE_US, 1e-9);
		started->took_us = 50e3;
		sched_pause(&s, started, started->cost_us - 50e3);
	}
	assert_ptr_equal(run_one(&s, CPU), &jobs[0]);
	assert_ptr_equal(run_one(&s, CPU), &behind); /* it came before the others were put back */
	assert_ptr_equal(run_one(&s, CPU), &jobs[1]);
	assert_ptr_equal(run_one(&s, CPU), &jobs[2]);
	assert_empty(&s);
}

static void test_who_may_interrupt_whom(void **state)
{
	static const struct {
		kops_priority started, waiting;
		bool same_flow, yields;
	} cases[] = {
	    {KOPS_NORMAL, KOPS_NORMAL, true, true}, {KOPS_NORMAL, KOPS_HIGH, true, true},
	    {KOPS_HIGH, KOPS_NORMAL, true, false},  {KOPS_LOW, KOPS_NORMAL, true, true},
	    {KOPS_NORMAL, KOPS_LOW, false, false},  {KOPS_LOW, KOPS_NORMAL, false, true},
	    {KOPS_HIGH, KOPS_NORMAL, false, true},  {KOPS_LOW, KOPS_LOW, false, true},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct sched s = {0};
		struct sched_flow fa = {0}, fb = {0};
		struct sched_queue qa = {.flow = &fa}, qb = {.flow = cases[i].same_flow ? &fa : &fb};
		struct sched_job a = job(100, cases[i].started, CPU), b = job(100, cases[i].waiting, CPU);

		sched_add(&s, &qa, &a);
		assert_ptr_equal(sched_next(&s, CPU, NULL), &a);
		sched_add(&s, &qb, &b);
		assert_int_equal(sched_yields_after_us(&s, &a) < 1e9, cases[i].yields);
		sched_finish(&s, &a);
		sched_remove(&s, &b);
		assert_empty(&s);
	}
}

static struct sched_job *asked_about, *chosen;

static struct sched_job *choose(struct sched_job *next)
{
	asked_about = next;
	return chosen;
}

/*
 * If the caller starts nothing, the first stays the first. Another that waits starts instead if the caller
 * chooses so.
 */
static void test_the_caller_chooses(void **state)
{
	struct sched s = {0};
	struct sched_flow f = {0};
	struct sched_queue q = {.flow = &f}, other_q = {.flow = &f};
	struct sched_job first = job(1, KOPS_NORMAL, CPU), other = job(1, KOPS_NORMAL, CPU);
	struct sched_job *const choices[] = {NULL, &other, &first};

	(void)state;
	asked_about = NULL;
	assert_null(sched_next(&s, CPU, choose));
	assert_null(asked_about);
	sched_add(&s, &q, &first);
	sched_add(&s, &other_q, &other);
	for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
		chosen = choices[i];
		assert_ptr_equal(sched_next(&s, CPU, choose), chosen);
		assert_ptr_equal(asked_about, &first);
		assert_int_equal(s.devices[CPU].waiting, 2 - i);
	}
	sched_finish(&s, &first);
	sched_finish(&s, &other);
	assert_empty(&s);
}

static void test_remove_anywhere(void **state)
{
	(void)state;
	for (int gone = 0; gone < 4; gone++) {
		struct sched s = {0};
		struct sched_flow f = {0};
		struct sched_queue q = {.flow = &f};
		struct sched_job jobs[4], late = job(1, KOPS_NORMAL, CPU);

		for (int i = 0; i < 4; i++) {
			jobs[i] = job(1, KOPS_NORMAL, CPU);
			sched_add(&s, &q, &jobs[i]);
		}
		sched_remove(&s, &jobs[gone]);
		sched_add(&s, &q, &late);
		for (int i = 0; i < 4; i++)
			if (i != gone)
				assert_ptr_equal(run_one(&s, CPU), &jobs[i]);
		assert_ptr_equal(run_one(&s, CPU), &late);
		assert_empty(&s);
	}
}

/* ---- Random play against a model ---- */

enum { FLOWS = 4, QUEUES = 12, JOBS = 64, STEPS = 200000 };

enum where { IDLE, WAITING, RUNNING };

struct model {
	struct sched s;
	struct sched_flow flows[FLOWS];
	struct sched_queue queues[QUEUES];
	struct sched_job jobs[JOBS];
	enum where where[JOBS];
};

static void check_model(const struct model *m)
{
	double backlog[2] = {0};
	unsigned waiting[2] = {0}, load[2] = {0};

	for (int i = 0; i < JOBS; i++) {
		if (m->where[i] == IDLE)
			continue;
		backlog[m->jobs[i].device] += m->jobs[i].cost_us;
		load[m->jobs[i].device]++;
		waiting[m->jobs[i].device] += m->where[i] == WAITING;
	}
	for (unsigned d = 0; d < 2; d++) {
		assert_int_equal(m->s.devices[d].waiting, waiting[d]);
		assert_int_equal(m->s.devices[d].load, load[d]);
		assert_near(m->s.devices[d].backlog_us, backlog[d], 1e-3);
	}
}

/* Returns true if no job of its queue is before it, or is in flight where it could not follow. */
static bool may_start(const struct model *m, const struct sched_job *job)
{
	if (job->blocked || list_first(&job->queue->jobs, struct sched_job, link) != job)
		return false;
	for (int i = 0; i < JOBS; i++)
		if (m->where[i] == RUNNING && m->jobs[i].queue == job->queue &&
		    (m->jobs[i].device != job->device || m->jobs[i].may_pause))
			return false;
	return true;
}

static bool is_better(const struct sched_job *a, const struct sched_job *b)
{
	static const int ranks[] = {[KOPS_HIGH] = 0, [KOPS_NORMAL] = 1, [KOPS_LOW] = 2};
	double vtime_a = a->queue->flow->devices[a->device].party.vtime;
	double vtime_b = b->queue->flow->devices[b->device].party.vtime;

	if ((a->priority == KOPS_LOW) != (b->priority == KOPS_LOW))
		return b->priority == KOPS_LOW;
	if (a->queue->flow == b->queue->flow && a->priority != b->priority)
		return ranks[a->priority] < ranks[b->priority];
	if (a->queue->flow != b->queue->flow && vtime_a != vtime_b)
		return vtime_a < vtime_b;
	return a->seq < b->seq;
}

/* Returns what sched_next() should start: the best of each flow's best. */
static const struct sched_job *best_of(const struct model *m, unsigned device)
{
	const struct sched_job *best_of_flow[FLOWS] = {NULL}, *best = NULL;

	for (int i = 0; i < JOBS; i++) {
		const struct sched_job *j = &m->jobs[i], **of_flow;

		if (m->where[i] != WAITING || j->device != device || !may_start(m, j))
			continue;
		of_flow = &best_of_flow[j->queue->flow - m->flows];
		if (!*of_flow || is_better(j, *of_flow))
			*of_flow = j;
	}
	for (int f = 0; f < FLOWS; f++)
		if (best_of_flow[f] && (!best || is_better(best_of_flow[f], best)))
			best = best_of_flow[f];
	return best;
}

static void start_next(struct model *m, unsigned device)
{
	const struct sched_job *expected = best_of(m, device);
	struct sched_job *started = sched_next(&m->s, device, NULL);

	assert_ptr_equal(started, expected);
	if (started)
		m->where[started - m->jobs] = RUNNING;
}

/* A device keeps the order of a queue. */
static int first_running_of_its_queue(const struct model *m, int i)
{
	for (int j = 0; j < JOBS; j++)
		if (m->where[j] == RUNNING && m->jobs[j].queue == m->jobs[i].queue &&
		    m->jobs[j].seq < m->jobs[i].seq)
			i = j;
	return i;
}

static void step(struct model *m)
{
	int i = rand() % JOBS;

	if (m->where[i] == RUNNING)
		i = first_running_of_its_queue(m, i);

	if (m->where[i] == RUNNING && m->jobs[i].may_pause && rand() % 2) {
		m->jobs[i].took_us = m->jobs[i].cost_us;
		sched_pause(&m->s, &m->jobs[i], 1 + rand() % 50);
		m->where[i] = WAITING;
	} else if (m->where[i] == RUNNING) {
		sched_finish(&m->s, &m->jobs[i]);
		m->where[i] = IDLE;
	} else if (m->where[i] == WAITING && m->jobs[i].blocked) {
		sched_unblock(&m->s, &m->jobs[i]);
	} else if (m->where[i] == WAITING && rand() % 4 == 0) {
		sched_remove(&m->s, &m->jobs[i]);
		m->where[i] = IDLE;
	} else if (m->where[i] == WAITING) {
		start_next(m, (unsigned)rand() % 2);
	} else {
		m->jobs[i] = job(1 + rand() % 100, (kops_priority)(rand() % 3), (unsigned)rand() % 2);
		m->jobs[i].may_pause = rand() % 3 == 0;
		m->jobs[i].blocked = rand() % 5 == 0;
		sched_add(&m->s, &m->queues[rand() % QUEUES], &m->jobs[i]);
		m->where[i] = WAITING;
	}
}

static void test_random_play(void **state)
{
	static struct model m;
	unsigned seed = (unsigned)seed_of_run();

	(void)state;
	print_message("seed: KOPS_TEST_SEED=%u\n", seed);
	srand(seed);
	for (int i = 0; i < QUEUES; i++)
		m.queues[i].flow = &m.flows[i % FLOWS];
	for (int n = 0; n < STEPS; n++) {
		step(&m);
		check_model(&m);
	}
	for (int i = 0; i < JOBS; i++) {
		if (m.where[i] == WAITING)
			sched_remove(&m.s, &m.jobs[i]);
		else if (m.where[i] == RUNNING)
			sched_finish(&m.s, &m.jobs[i]);
	}
	assert_empty(&m.s);
}

/* A long job that is due and finds no room: what is short may go instead, unless it is of a higher tier. */
static void test_a_short_job_may_go_instead(void **state)
{
	struct sched s = {0};
	uint64_t nothing = 0;
	struct sched_flow first = {0}, second = {0}, light = {0}, background = {.share = &nothing};
	struct sched_queue queues[2] = {{.flow = &first}, {.flow = &second}};
	struct sched_queue of_light = {.flow = &light}, of_background = {.flow = &background};
	struct sched_job out = job(48000, KOPS_NORMAL, GPU), due = job(48000, KOPS_NORMAL, GPU),
	                 brief = job(30, KOPS_NORMAL, GPU), later = job(20, KOPS_NORMAL, GPU);

	(void)state;
	sched_add(&s, &queues[0], &out);
	assert_ptr_equal(sched_next(&s, GPU, NULL), &out);
	sched_add(&s, &queues[1], &due);
	assert_null(sched_instead(&s, &due, 150)); /* there is nothing short */
	assert_null(sched_instead(&s, &due, 1e6)); /* nor another long one */
	sched_add(&s, &of_background, &later);
	assert_null(sched_instead(&s, &due, 150));
	sched_add(&s, &of_light, &brief);
	assert_ptr_equal(sched_instead(&s, &due, 150), &brief);
	assert_null(sched_instead(&s, &due, 25));
	sched_remove(&s, &brief);
	sched_remove(&s, &due);
	assert_ptr_equal(run_one(&s, GPU), &later);
	sched_finish(&s, &out);
	assert_empty(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_one_queue_is_in_order),
	    cmocka_unit_test(test_flows_share_by_cost),
	    cmocka_unit_test(test_shares_are_in_proportion),
	    cmocka_unit_test(test_a_share_may_change_while_a_job_is_out),
	    cmocka_unit_test(test_the_background_waits_for_low),
	    cmocka_unit_test(test_a_larger_share_is_interrupted_later),
	    cmocka_unit_test(test_idling_saves_nothing),
	    cmocka_unit_test(test_a_flow_that_had_more_is_ahead),
	    cmocka_unit_test(test_high_counts_within_its_flow_only),
	    cmocka_unit_test(test_low_waits_for_every_flow),
	    cmocka_unit_test(test_priorities_of_one_flow),
	    cmocka_unit_test(test_a_queue_stays_on_its_device_while_it_runs),
	    cmocka_unit_test(test_nothing_of_a_queue_follows_a_job_that_may_pause),
	    cmocka_unit_test(test_nothing_of_a_queue_follows_a_job_beside_others),
	    cmocka_unit_test(test_what_starts_out_of_turn_is_charged),
	    cmocka_unit_test(test_a_blocked_head_holds_its_queue_only),
	    cmocka_unit_test(test_a_paused_job_gives_way_and_goes_on),
	    cmocka_unit_test(test_a_slice_is_as_long_as_the_job_that_waits),
	    cmocka_unit_test(test_queues_of_one_flow_take_turns),
	    cmocka_unit_test(test_who_may_interrupt_whom),
	    cmocka_unit_test(test_the_caller_chooses),
	    cmocka_unit_test(test_remove_anywhere),
	    cmocka_unit_test(test_random_play),
	    cmocka_unit_test(test_a_short_job_may_go_instead),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
