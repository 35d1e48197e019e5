/* Tests threads.c: every part runs once, callers may meet, workers start and end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <pthread.h>
#include <stdatomic.h>

#include <cmocka.h>

#include "common/threads.h"

#define PARTS_MAX 64

struct tally {
	unsigned seen[PARTS_MAX]; /* not atomic, so a part that ran twice at once would be a race */
};

static void count_part(void *ctx, unsigned part)
{
	struct tally *t = ctx;

	t->seen[part]++;
}

static void every_part_runs_once(void **state)
{
	(void)state;
	threads_set(4);
	for (unsigned round = 0; round < 2000; round++) {
		struct tally t = {{0}};
		unsigned n = 1 + round % PARTS_MAX;
		threads_run(n, count_part, &t);
		for (unsigned i = 0; i < PARTS_MAX; i++)
			assert_int_equal(t.seen[i], i < n);
	}
	threads_stop();
}

static void note_thread(void *ctx, unsigned part)
{
	((pthread_t *)ctx)[part] = pthread_self();
}

/* The parts are the same, so the results are. */
static void a_thread_alone_runs_all_parts_itself(void **state)
{
	pthread_t threads[PARTS_MAX];
	unsigned parts;

	(void)state;
	threads_set(4);
	parts = threads_parts(1 << 20, 1);
	assert_false(threads_set_alone(true));
	assert_int_equal(threads_parts(1 << 20, 1), parts);
	assert_int_equal(threads_count(), 4);
	for (unsigned round = 0; round < 100; round++) {
		threads_run(PARTS_MAX, note_thread, threads);
		for (unsigned i = 0; i < PARTS_MAX; i++)
			assert_true(pthread_equal(threads[i], pthread_self()));
	}
	assert_true(threads_set_alone(false));
	threads_stop();
}

static void *run_often(void *failures)
{
	for (unsigned round = 0; round < 500; round++) {
		struct tally t = {{0}};
		threads_run(16, count_part, &t);
		for (unsigned i = 0; i < 16; i++)
			if (t.seen[i] != 1)
				atomic_fetch_add((atomic_uint *)failures, 1);
	}
	return NULL;
}

static void callers_may_meet(void **state)
{
	atomic_uint failures = 0;
	pthread_t others[3];

	(void)state;
	threads_set(3);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&others[i], NULL, run_often, &failures), 0);
	run_often(&failures);
	for (unsigned i = 0; i < 3; i++)
		pthread_join(others[i], NULL);
	assert_int_equal(failures, 0);
	threads_stop();
}

static void run_inside(void *ctx, unsigned part)
{
	struct tally inner = {{0}};

	threads_run(5, count_part, &inner);
	((struct tally *)ctx)->seen[part] = inner.seen[0] + inner.seen[4];
}

static void a_part_may_run_parts(void **state)
{
	struct tally t = {{0}};

	(void)state;
	threads_set(3);
	threads_run(8, run_inside, &t);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(t.seen[i], 2);
	threads_stop();
}

static void workers_come_and_go(void **state)
{
	(void)state;
	for (unsigned n = 0; n < 20; n++) {
		struct tally t = {{0}};
		threads_set(n % 5);
		assert_int_equal(threads_count(), n % 5 ? n % 5 : 1);
		threads_run(9, count_part, &t);
		for (unsigned i = 0; i < 9; i++)
			assert_int_equal(t.seen[i], 1);
		threads_stop();
		threads_stop();
	}
}

static void parts_follow_work_and_threads(void **state)
{
	(void)state;
	threads_set(4);
	assert_int_equal(threads_parts(0, 100), 1);
	assert_int_equal(threads_parts(199, 100), 1);
	assert_int_equal(threads_parts(200, 100), 2);
	assert_int_equal(threads_parts(UINT64_MAX, 1), 16);
	threads_set(1);
	assert_int_equal(threads_parts(UINT64_MAX, 1), 1);
}

static void bounds_cover_all_work(void **state)
{
	(void)state;
	for (uint64_t work = 0; work < 100; work++)
		for (unsigned n = 1; n < 20; n++) {
			assert_int_equal(threads_bound(work, 0, n), 0);
			assert_int_equal(threads_bound(work, n, n), work);
			for (unsigned i = 0; i < n; i++) {
				uint64_t width = threads_bound(work, i + 1, n) - threads_bound(work, i, n);
				assert_true(width == work / n || width == work / n + 1);
			}
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_part_runs_once),  cmocka_unit_test(a_thread_alone_runs_all_parts_itself),
	    cmocka_unit_test(callers_may_meet),      cmocka_unit_test(a_part_may_run_parts),
	    cmocka_unit_test(workers_come_and_go),   cmocka_unit_test(parts_follow_work_and_threads),
	    cmocka_unit_test(bounds_cover_all_work),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
