/* Tests the rings of proto/ring_memory.h: positions, places for ends, and when the loop sleeps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "loop.h"
#include "ring.h"

enum { ENTRIES = 4 };

struct fixture {
	uv_loop_t loop;
	struct rings all;
	struct ring *ring;
	unsigned looks;
	bool is_busy;
	char why[WHY_BYTES];
};

/* How long another thread has the CPU when the loop yields. (OpenBLAS's thread yields its own.) */
static _Thread_local unsigned slice_us;

int sched_yield(void)
{
	if (slice_us)
		usleep(slice_us);
	return 0;
}

static void has_runs(void *user)
{
	((struct fixture *)user)->looks++;
}

static bool is_busy(const struct rings *all)
{
	return ((const struct fixture *)((const char *)all - offsetof(struct fixture, all)))->is_busy;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof *f);
	char why[WHY_BYTES];
	int fd;

	uv_loop_init(&f->loop);
	rings_init(&f->all, &f->loop, has_runs, is_busy);
	f->all.cpus_are_few = false;
	assert_int_equal(ring_new(&f->all, f, ENTRIES, &f->ring, &fd, why), 0);
	close(fd);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	ring_free(f->ring);
	close_loop(&f->loop);
	free(f);
	return 0;
}

/* Puts a run in, as a client does. */
static void put(struct ring_memory *m, uint64_t prepared)
{
	uint32_t tail = ring_load(&m->run_tail);

	ring_runs(m)[tail % ENTRIES] = (struct ring_run){.prepared = prepared, .id = prepared * 2};
	ring_store(&m->run_tail, tail + 1);
}

static void run_until_it_sleeps(struct fixture *f)
{
	while (!ring_load(&f->ring->memory->daemon_sleeps))
		uv_run(&f->loop, UV_RUN_NOWAIT);
}

static uint64_t get_end(struct ring_memory *m)
{
	uint32_t head = ring_load(&m->end_head);
	uint64_t id = ring_ends(m, ENTRIES)[head % ENTRIES].id;

	assert_int_not_equal(head, ring_load(&m->end_tail));
	ring_store(&m->end_head, head + 1);
	return id;
}

static void test_positions_wrap(void **state)
{
	struct fixture *f = *state;
	struct ring_memory *m = f->ring->memory;
	struct ring_run run;

	f->ring->taken = f->ring->put = UINT32_MAX - 5;
	ring_store(&m->run_tail, f->ring->taken);
	ring_store(&m->end_tail, f->ring->put);
	ring_store(&m->end_head, f->ring->put);
	for (uint64_t i = 1; i <= 40; i++) {
		put(m, i);
		assert_int_equal(ring_take(f->ring, &run, f->why), 1);
		assert_int_equal(run.prepared, i);
		assert_int_equal(run.id, 2 * i);
		assert_int_equal(ring_take(f->ring, &run, f->why), 0);
		ring_put(f->ring, &(struct ring_end){.id = run.id});
		assert_int_equal(get_end(m), 2 * i);
	}
	assert_int_equal(ring_load(&m->run_head), 34);
}

static void test_a_run_needs_a_place_for_its_end(void **state)
{
	struct fixture *f = *state;
	struct ring_memory *m = f->ring->memory;
	struct ring_run run;

	for (uint64_t i = 0; i < ENTRIES; i++) {
		put(m, i);
		assert_int_equal(ring_take(f->ring, &run, f->why), 1);
	}
	put(m, 9);
	assert_int_equal(ring_take(f->ring, &run, f->why), 0); /* all are reserved */
	ring_put(f->ring, &(struct ring_end){.id = 1});
	assert_int_equal(ring_take(f->ring, &run, f->why), 0); /* one unread end is left */
	get_end(m);
	assert_int_equal(ring_take(f->ring, &run, f->why), 1);
	put(m, 10);
	assert_int_equal(ring_take(f->ring, &run, f->why), 0);
	ring_release(f->ring); /* answered by the socket */
	assert_int_equal(ring_take(f->ring, &run, f->why), 1);
	assert_int_equal(run.prepared, 10);
}

static void test_invalid_positions(void **state)
{
	struct fixture *f = *state;
	struct ring_memory *m = f->ring->memory;
	struct ring_run run;
	const uint32_t wrong[] = {ENTRIES + 1, 1u << 31, UINT32_MAX};

	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		ring_store(&m->run_tail, wrong[i]);
		assert_int_equal(ring_take(f->ring, &run, f->why), KOPS_E_PROTOCOL);
	}
	ring_store(&m->run_tail, 1);
	ring_store(&m->end_head, 7); /* there is no such end */
	assert_int_equal(ring_take(f->ring, &run, f->why), KOPS_E_PROTOCOL);
	assert_string_equal(f->why, "invalid ring positions (run_tail 1, end_head 7)");
	ring_store(&m->end_head, 0);
	assert_int_equal(ring_take(f->ring, &run, f->why), 1);
}

/* uv_backend_timeout() cannot tell: it is 0 while the loop still has changes to its watches. */
static void test_the_loop_says_that_it_sleeps(void **state)
{
	struct fixture *f = *state;
	struct ring_memory *m = f->ring->memory;

	uv_ref((uv_handle_t *)&f->all.prepare); /* otherwise the loop would not run */
	assert_int_equal(ring_load(&m->daemon_sleeps), 1);
	ring_awaken(f->ring);
	assert_int_equal(ring_load(&m->daemon_sleeps), 0);
	uv_run(&f->loop, UV_RUN_NOWAIT);
	assert_int_equal(ring_load(&m->daemon_sleeps), 1);
	assert_int_equal(f->looks, 0);
	ring_awaken(f->ring);
	put(m, 1);
	uv_run(&f->loop, UV_RUN_NOWAIT); /* it sees the run, and does not sleep */
	assert_int_equal(ring_load(&m->daemon_sleeps), 0);
	assert_int_equal(f->looks, 1);
	rings_look(&f->all);
	assert_int_equal(f->looks, 2);
}

/* Otherwise it would poll until the user can take runs, which a client may delay for ever. */
static void test_the_loop_sleeps_while_runs_cannot_be_taken(void **state)
{
	struct fixture *f = *state;

	uv_ref((uv_handle_t *)&f->all.prepare);
	ring_awaken(f->ring);
	put(f->ring->memory, 1);
	uv_run(&f->loop, UV_RUN_NOWAIT);
	assert_false(uv_is_active((uv_handle_t *)&f->all.idle));
	assert_int_equal(f->looks, 1);
}

/* After the end of a run that takes longer than RINGS_LOOK_NS, the client's next one wakes nobody. */
static void test_the_loop_looks_again_after_an_end(void **state)
{
	struct fixture *f = *state;
	struct ring_memory *m = f->ring->memory;
	struct ring_run run;

	uv_ref((uv_handle_t *)&f->all.prepare);
	ring_awaken(f->ring);
	put(m, 1);
	assert_int_equal(ring_take(f->ring, &run, f->why), 1);
	run_until_it_sleeps(f);
	ring_put(f->ring, &(struct ring_end){.id = run.id});
	assert_int_equal(ring_load(&m->daemon_sleeps), 0);
	put(m, 2);
	rings_look(&f->all);
	assert_int_equal(f->looks, 1);
	assert_int_equal(ring_take(f->ring, &run, f->why), 1);
	run_until_it_sleeps(f);
}

/* One of the client's n runs ends after total_us. Returns whether the loop then polls for the next one. */
static bool looks_after(struct fixture *f, unsigned n, double total_us)
{
	struct ring_run run = {0};
	bool looks;

	ring_awaken(f->ring);
	for (unsigned i = 0; i < n; i++) {
		put(f->ring->memory, 1);
		assert_int_equal(ring_take(f->ring, &run, f->why), 1);
		assert_false(rings_are_awake(&f->all));
	}
	ring_put(f->ring, &(struct ring_end){.id = run.id, .total_us = total_us});
	looks = rings_are_awake(&f->all);
	f->is_busy = false;
	for (unsigned i = 1; i < n; i++)
		ring_release(f->ring);
	ring_store(&f->ring->memory->end_head, f->ring->put);
	run_until_it_sleeps(f);
	assert_false(rings_are_awake(&f->all));
	return looks;
}

static void test_few_cpus_are_used_to_look_for_what_comes_soon(void **state)
{
	struct fixture *f = *state;

	f->all.cpus_are_few = true;
	uv_ref((uv_handle_t *)&f->all.prepare);
	assert_true(looks_after(f, 1, 10));
	assert_false(looks_after(f, 1, 80)); /* the client takes its time too */
	assert_false(looks_after(f, 2, 10)); /* more will end */
	f->is_busy = true;
	assert_false(looks_after(f, 1, 10));
}

/* The loop does not poll for a tenth of a second. */
static void test_few_cpus_are_left_to_others(void **state)
{
	struct fixture *f = *state;

	f->all.cpus_are_few = true;
	uv_ref((uv_handle_t *)&f->all.prepare);
	slice_us = 300;
	for (unsigned i = 0; f->all.no_looks_until_ns == 0; i++) { /* a poll may end before it yields */
		assert_int_not_equal(i, 1000);
		assert_true(looks_after(f, 1, 10));
	}
	slice_us = 0;
	assert_false(looks_after(f, 1, 10));
	f->all.no_looks_until_ns -= 100000000u;
	assert_true(looks_after(f, 1, 10));
}

static void test_it_is_watched_by_a_client_that_spins(void **state)
{
	struct fixture *f = *state;

	assert_false(ring_is_watched(f->ring));
	ring_store(&f->ring->memory->client_spins, 1);
	assert_true(ring_is_watched(f->ring));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* ---- Many ---- */

enum { MANY = 1000 };

static struct ring *many[MANY];

static void open_many(struct fixture *f)
{
	char why[WHY_BYTES];
	int fd;

	for (int i = 0; i < MANY; i++) {
		assert_int_equal(ring_new(&f->all, f, ENTRIES, &many[i], &fd, why), 0);
		close(fd);
		ring_awaken(many[i]);
	}
}

static void close_many(struct fixture *f)
{
	for (int i = 0; i < MANY; i++)
		ring_free(many[i]);
	assert_true(list_is_empty(&f->all.awake));
	assert_int_equal(f->all.n_awake, 0);
}

/* A look at each of a thousand rings would be a turn of 0.1 ms or more. */
static void test_a_look_is_at_a_few(void **state)
{
	struct fixture *f = *state;
	unsigned looks = 0;

	open_many(f);
	for (int i = 0; i < MANY; i++)
		put(many[i]->memory, 1);
	for (unsigned before = 0; f->looks < MANY; before = f->looks, looks++) {
		rings_look(&f->all);
		assert_in_range(f->looks - before, 1, RINGS_AT_ONCE);
	}
	assert_int_equal(looks, (MANY + RINGS_AT_ONCE - 1) / RINGS_AT_ONCE);
	ring_free(many[MANY - 1]); /* the next look would be there */
	ring_free(many[0]);
	rings_look(&f->all);
	assert_int_equal(f->looks, (looks + 1) * RINGS_AT_ONCE);
	many[0] = many[MANY - 1] = NULL;
	close_many(f);
}

static unsigned asleep(void)
{
	unsigned n = 0;

	for (int i = 0; i < MANY; i++)
		n += ring_load(&many[i]->memory->daemon_sleeps);
	return n;
}

/* They are not all put to sleep at once, but the loop does not sleep before they are. */
static void test_they_fall_asleep_by_and_by(void **state)
{
	struct fixture *f = *state;
	unsigned before = 0;

	open_many(f);
	uv_ref((uv_handle_t *)&f->all.prepare);
	while (before < MANY) {
		unsigned now;

		uv_run(&f->loop, UV_RUN_NOWAIT);
		now = asleep();
		assert_in_range(now - before, 1, RINGS_AT_ONCE);
		assert_int_equal(uv_is_active((uv_handle_t *)&f->all.to_come), now < MANY);
		if (now > MANY / 2 && before <= MANY / 2) { /* one wakes up meanwhile */
			ring_awaken(many[0]);
			now--;
		}
		before = now;
	}
	close_many(f);
	uv_unref((uv_handle_t *)&f->all.prepare);
}

/* The loop does not stay awake for users that cannot take runs now. */
static void test_runs_that_cannot_be_taken_keep_nobody_awake(void **state)
{
	struct fixture *f = *state;

	open_many(f);
	for (int i = 0; i < MANY; i++)
		put(many[i]->memory, 1);
	uv_ref((uv_handle_t *)&f->all.prepare);
	do
		uv_run(&f->loop, UV_RUN_NOWAIT);
	while (uv_is_active((uv_handle_t *)&f->all.to_come));
	assert_int_equal(f->looks, MANY);
	assert_int_equal(f->all.n_awake, MANY);
	close_many(f);
	uv_unref((uv_handle_t *)&f->all.prepare);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(test_positions_wrap),
	    TEST(test_it_is_watched_by_a_client_that_spins),
	    TEST(test_a_run_needs_a_place_for_its_end),
	    TEST(test_invalid_positions),
	    TEST(test_the_loop_says_that_it_sleeps),
	    TEST(test_the_loop_looks_again_after_an_end),
	    TEST(test_few_cpus_are_used_to_look_for_what_comes_soon),
	    TEST(test_few_cpus_are_left_to_others),
	    TEST(test_the_loop_sleeps_while_runs_cannot_be_taken),
	    TEST(test_a_look_is_at_a_few),
	    TEST(test_they_fall_asleep_by_and_by),
	    TEST(test_runs_that_cannot_be_taken_keep_nobody_awake),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
