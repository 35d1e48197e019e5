/* Tests what a job does to its buffers from its start to its end, also if it fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "job/engine.h"
#include "job/uses.h"
#include "unit/daemon/loop.h"

enum { N = 2 };

struct fixture {
	uv_loop_t loop;
	struct engine engine;
	struct buffer buffers[N];
	struct buffer_use list[N];
	struct uses uses;
	char why[WHY_BYTES];
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof *f);

	uv_loop_init(&f->loop);
	f->engine.loop = &f->loop;
	f->uses = (struct uses){.list = f->list, .n = N};
	for (unsigned i = 0; i < N; i++) {
		f->buffers[i] = (struct buffer){
		    .engine = &f->engine, .state = BUFFER_READY, .refs = 1, .fd = -1, .id = 7 + i};
		f->buffers[i].of = &f->buffers[i];
		f->list[i].buffer = &f->buffers[i];
	}
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	close_loop(&f->loop);
	free(f);
	return 0;
}

static int start(struct fixture *f)
{
	bool pin;

	return uses_start(&f->uses, &f->engine, false, &pin, f->why);
}

static void what_was_lost_cannot_be_read(void **state)
{
	struct fixture *f = *state;

	f->buffers[1].lost = true;
	f->list[1].reads = f->list[1].fills = true;
	assert_int_equal(start(f), KOPS_E_LOST);
	assert_string_equal(f->why, "the content of RESIDENT buffer 8 was lost when kopsd restarted; write all "
	                            "of it with one op first");
	assert_true(f->buffers[1].lost);
	f->list[1].reads = f->list[1].fills = false; /* a part of the buffer is written */
	assert_int_equal(start(f), 0);
	uses_end(&f->uses, true);
	assert_true(f->buffers[1].lost);
}

/* Also if it was published after the job had been queued. */
static void what_is_frozen_cannot_be_written(void **state)
{
	struct fixture *f = *state;
	unsigned *const freezes[] = {&f->buffers[1].n_names, &f->buffers[1].n_attached};

	for (unsigned i = 0; i < 2; i++) {
		*freezes[i] = 1;
		f->list[1].writes = false;
		assert_int_equal(start(f), 0);
		uses_end(&f->uses, true);
		f->list[1].writes = true;
		assert_int_equal(start(f), KOPS_E_READONLY);
		*freezes[i] = 0;
		assert_int_equal(start(f), 0);
		assert_int_equal(f->buffers[1].writers_out, 1);
		assert_int_equal(f->buffers[0].writers_out, 0);
		uses_end(&f->uses, true);
		assert_int_equal(f->buffers[1].writers_out, 0);
	}
	assert_string_equal(f->why,
	                    "buffer 8 is still attached by others, so no op may write it; wait until they "
	                    "have dropped it, or write another buffer");
}

static void a_job_meets_others_until_it_ends(void **state)
{
	struct fixture *f = *state;
	struct uses second = {.list = f->list + 1, .n = 1};

	for (unsigned beside = 0; beside < 2; beside++) {
		f->uses.beside = beside;
		assert_false(uses_meet(&second, false));
		assert_int_equal(start(f), 0);
		assert_true(uses_meet(&second, false));
		assert_int_equal(uses_meet(&second, true), beside);
		uses_end(&f->uses, true);
		assert_false(uses_meet(&second, false));
		assert_false(uses_meet(&second, true));
	}
	f->buffers[1].lost = f->list[1].reads = true;
	assert_int_equal(start(f), KOPS_E_LOST); /* it has not started */
	assert_false(uses_meet(&second, false));
}

static void a_job_that_fills_it_restores_it(void **state)
{
	struct fixture *f = *state;

	f->buffers[0].lost = true;
	f->list[0].fills = true;
	assert_int_equal(start(f), 0);
	assert_false(f->buffers[0].lost); /* for later jobs of its queue */
	uses_end(&f->uses, true);
	assert_false(f->buffers[0].lost);
}

/* Otherwise a later job would compute with undefined content. */
static void a_job_that_fails_restores_nothing(void **state)
{
	struct fixture *f = *state;

	f->buffers[0].lost = true;
	f->list[0].fills = f->list[1].fills = true;
	assert_int_equal(start(f), 0);
	uses_end(&f->uses, false);
	assert_true(f->buffers[0].lost);
	assert_false(f->buffers[1].lost); /* the content from before still counts */
	assert_int_equal(start(f), 0);    /* prepared, and run again */
	uses_end(&f->uses, true);
	assert_false(f->buffers[0].lost);
	assert_int_equal(start(f), 0);
	uses_end(&f->uses, false);
	assert_false(f->buffers[0].lost);
}

static void a_job_that_cannot_start_changes_nothing(void **state)
{
	struct fixture *f = *state;

	f->buffers[0].lost = true;
	f->list[0].fills = true;
	f->buffers[1].state = BUFFER_FAILED;
	f->buffers[1].failure = KOPS_E_NOMEM;
	snprintf(f->buffers[1].why, WHY_BYTES, "no memory");
	assert_int_equal(start(f), KOPS_E_NOMEM);
	assert_string_equal(f->why, "no memory");
	assert_true(f->buffers[0].lost);
}

static void what_jobs_have_reached_is_mapped(void **state)
{
	struct fixture *f = *state;

	f->list[0].reach_bytes = 8192;
	f->buffers[1].memory.reached_bytes = 12288;
	f->list[1].reach_bytes = 4096;
	start(f);
	uses_end(&f->uses, false);
	assert_int_equal(f->buffers[0].memory.reached_bytes, 0);
	start(f);
	uses_end(&f->uses, true);
	assert_int_equal(f->buffers[0].memory.reached_bytes, 8192);
	assert_int_equal(f->buffers[1].memory.reached_bytes, 12288);
}

static void the_first_that_is_being_made(void **state)
{
	struct fixture *f = *state;

	assert_null(uses_pending(&f->uses));
	f->buffers[1].state = BUFFER_PENDING;
	assert_ptr_equal(uses_pending(&f->uses), &f->buffers[1]);
	f->buffers[0].state = BUFFER_PENDING;
	assert_ptr_equal(uses_pending(&f->uses), &f->buffers[0]);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(what_was_lost_cannot_be_read),      TEST(a_job_that_fills_it_restores_it),
	    TEST(a_job_that_fails_restores_nothing), TEST(a_job_that_cannot_start_changes_nothing),
	    TEST(what_jobs_have_reached_is_mapped),  TEST(the_first_that_is_being_made),
	    TEST(a_job_meets_others_until_it_ends),  TEST(what_is_frozen_cannot_be_written),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
