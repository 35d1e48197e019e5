/*
 * Tests quantiles against sorted samples, the ends of the histogram, its ageing, sums, and the ring of traced
 * jobs.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "seed.h"
#include "usage/load.h"
#include "usage/trace.h"
#include "usage/usage.h"

enum { SAMPLES = 20000 };

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void assert_near(double us, uint64_t want_ns)
{
	double error = fabs(us * 1e3 - (double)want_ns) / (double)want_ns;

	if (error > 1.0 / 32)
		fail_msg("%g us said, %g us is true", us, (double)want_ns / 1e3);
}

/* Uses exp(shape * uniform), which has a long tail, as latencies do. */
static void check_quantiles(unsigned seed, double shape)
{
	static uint64_t samples[SAMPLES];
	static const double shares[] = {0.001, 0.5, 0.9, 0.99, 0.999, 1};
	struct latency l = {.total = 0};

	srand48(seed);
	for (unsigned i = 0; i < SAMPLES; i++) {
		samples[i] = (uint64_t)(1000 * exp(shape * drand48()));
		latency_note(&l, samples[i]);
	}
	qsort(samples, SAMPLES, sizeof samples[0], compare);
	for (unsigned i = 0; i < sizeof shares / sizeof shares[0]; i++)
		assert_near(latency_quantile_us(&l, shares[i]),
		            samples[(unsigned)ceil(shares[i] * SAMPLES) - 1]);
}

static void test_quantiles(void **state)
{
	unsigned seed = (unsigned)seed_of_run();

	(void)state;
	print_message("seed %u\n", seed);
	for (unsigned i = 0; i < 5; i++)
		check_quantiles(seed + i, 2 * i + 0.01);
}

static void test_ends_of_the_histogram(void **state)
{
	struct latency none = {.total = 0}, few = none, many = none;

	(void)state;
	assert_true(latency_quantile_us(&none, 0.5) == 0);
	latency_note(&few, 0);
	assert_true(latency_quantile_us(&few, 0) > 0);
	assert_near(latency_quantile_us(&few, 0.99), 256);
	latency_note(&many, UINT64_MAX);
	latency_note(&many, (1ull << LATENCY_BITS_MAX) - 1);
	assert_int_equal(many.counts[LATENCY_BUCKETS - 1], 2);
	assert_near(latency_quantile_us(&many, 0.99), 1ull << LATENCY_BITS_MAX);
	for (unsigned bits = LATENCY_BITS_MIN; bits < LATENCY_BITS_MAX; bits++) {
		struct latency at = none;
		latency_note(&at, 1ull << bits);
		assert_int_equal(at.counts[(bits - LATENCY_BITS_MIN) * LATENCY_STEPS], 1);
		latency_note(&at, (1ull << bits) - 1);
		assert_int_equal(at.counts[(bits - LATENCY_BITS_MIN) * LATENCY_STEPS], bits == 8 ? 2 : 1);
	}
}

/* Half of the count is of the latest 32767 jobs. */
static void test_old_jobs_count_less(void **state)
{
	struct latency l = {.total = 0};

	(void)state;
	for (unsigned i = 0; i < UINT16_MAX - 1; i++)
		latency_note(&l, 1000);
	assert_int_equal(l.total, UINT16_MAX - 1);
	latency_note(&l, 1000);
	assert_int_equal(l.total, UINT16_MAX / 2);
	for (unsigned i = 0; i < UINT16_MAX / 2 + 1; i++)
		latency_note(&l, 1000000);
	assert_near(latency_quantile_us(&l, 0.5), 1000000);
	assert_near(latency_quantile_us(&l, 0.3), 1000);
	for (unsigned i = 0; i < 20 * UINT16_MAX; i++)
		latency_note(&l, 1000000);
	assert_near(latency_quantile_us(&l, 0.001), 1000000);
	assert_true(l.total < UINT16_MAX);
}

static void test_sums(void **state)
{
	struct usage u = {.jobs_done = 0};
	struct cost cost = {.flops = 10, .bytes = 20};

	(void)state;
	usage_note_done(&u, &cost, 1000, 5000);
	usage_note_done(&u, &cost, 2000, 6000);
	assert_int_equal(u.jobs_done, 2);
	assert_true(u.cost.flops == 20 && u.cost.bytes == 40 && u.queue_us == 3 && u.total_us == 11);
	assert_near(latency_quantile_us(&u.latency, 0.5), 5000);
}

/* A running job is counted. If it ends with less time than seemed, nothing is taken back. */
static void test_device_time_never_falls(void **state)
{
	struct usage u = {.device_us = 100};

	(void)state;
	assert_true(usage_device_us(&u) == 100);
	u.now.live_us = 50;
	assert_true(usage_device_us(&u) == 150);
	u.now.live_us = 0;
	u.device_us = 140;
	assert_true(usage_device_us(&u) == 150);
	u.device_us = 160;
	assert_true(usage_device_us(&u) == 160);
}

#define MS 1000000ull

static void near(double share, double expected)
{
	if (fabs(share - expected) > 0.02)
		fail_msg("%g, not %g", share, expected);
}

/* Simulates `ms` of work every 10 ms, for during_ms. */
static void work(struct load *l, uint64_t *now, unsigned ms, unsigned during_ms)
{
	for (unsigned at = 0; at < during_ms; at += 10) {
		*now += (10 - ms) * MS;
		*now += ms * MS;
		load_note(l, ms * MS, *now);
	}
}

static void test_load(void **state)
{
	struct load l = {.share = 0};
	uint64_t now = 7000 * MS;

	(void)state;
	near(load_share(&l, 0, now), 0);
	work(&l, &now, 5, 5000);
	near(load_share(&l, 0, now), 0.5);
	near(load_share(&l, 0, now + 1000 * MS), 0.5 * exp(-1)); /* idle since */
	near(load_share(&l, 1000 * MS, now + 1000 * MS), 1 - 0.5 * exp(-1));
	near(load_share(&l, 0, now), 0.5); /* looking changed nothing */
	work(&l, &now, 10, 5000);
	near(load_share(&l, 0, now), 1);
	now += 60000 * MS;
	near(load_share(&l, 0, now), 0);
	load_note(&l, 1000 * MS, now); /* a long one after a pause is not spread over the pause */
	near(load_share(&l, 0, now), 1 - exp(-1));
}

/* Simulates a device that runs several jobs at a time. */
static void test_load_of_pieces_that_overlap(void **state)
{
	struct load l = {.share = 0};
	uint64_t now = 7000 * MS;

	(void)state;
	for (unsigned i = 0; i < 1000; i++) {
		now += 10 * MS;
		load_note(&l, 30 * MS, now);
	}
	near(load_share(&l, 5 * MS, now), 1);
	assert_true(load_share(&l, 5 * MS, now) <= 1);
	load_note(&l, UINT64_MAX, now);
	assert_true(load_share(&l, UINT64_MAX, now + MS) <= 1);
}

static void test_trace(void **state)
{
	static struct trace t;

	(void)state;
	assert_null(trace_at(&t, 0));
	assert_null(trace_at(&t, 1));
	for (uint64_t i = 1; i <= TRACE_ENTRIES + 1; i++)
		*trace_next(&t) = (struct trace_entry){.job = i};
	assert_null(trace_at(&t, 1));
	assert_int_equal(trace_at(&t, 2)->job, 2);
	assert_int_equal(trace_at(&t, TRACE_ENTRIES + 1)->job, TRACE_ENTRIES + 1);
	assert_null(trace_at(&t, TRACE_ENTRIES + 2));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_quantiles),
	    cmocka_unit_test(test_ends_of_the_histogram),
	    cmocka_unit_test(test_old_jobs_count_less),
	    cmocka_unit_test(test_sums),
	    cmocka_unit_test(test_device_time_never_falls),
	    cmocka_unit_test(test_load),
	    cmocka_unit_test(test_load_of_pieces_that_overlap),
	    cmocka_unit_test(test_trace),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
