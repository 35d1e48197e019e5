/*
 * kops-client waits as long as kopsd answers, whatever the handle's timeout is, but not for ever if it does
 * not.
 */
#include "../client/fake_daemon.h"

#include "cli.h"
#include "verb/wait.h"

#define HANDLE_MS 200

/* Returns a job of one copy at a fake daemon, on a handle with a short timeout of its own. */
static kops_job *open_job(struct cli *cli, struct fake *f)
{
	kops_options options = {.size = sizeof options, .socket = f->path, .timeout_ms = HANDLE_MS};
	kops_buffer *x, *y;
	kops_job *job;

	cli->program = "kops-client";
	cli->flags.socket = f->path;
	assert_int_equal(kops_open(&cli->handle, &options, NULL, 0), 0);
	assert_int_equal(kops_alloc_start(cli->handle, 64, KOPS_SHARED, NULL, NULL, NULL, &x), 0);
	assert_int_equal(kops_alloc_start(cli->handle, 64, KOPS_SHARED, NULL, NULL, NULL, &y), 0);
	assert_int_equal(kops_job_new(cli->handle, NULL, &job), 0);
	assert_int_equal(kops_job_copy(job, kops_matrix(x, 0, KOPS_F32, 4, 4, 0),
	                               kops_matrix(y, 0, KOPS_F32, 4, 4, 0), NULL),
	                 0);
	return job;
}

static uint64_t expect_job(struct fake *f)
{
	fake_expect(f, FAKE_VERB(ALLOC));
	fake_expect(f, FAKE_VERB(ALLOC));
	return fake_expect(f, FAKE_VERB(SUBMIT))->id;
}

static void script_late(struct fake *f)
{
	fake_greet(f);
	uint64_t id = expect_job(f);
	usleep(4 * HANDLE_MS * 1000);
	fake_receipt(f, id);
	fake_expect_end(f);
}

static void test_a_job_may_take_longer_than_the_handle_waits(void **state)
{
	struct fake *f = *state;
	struct cli cli = {.handle = NULL};
	fake_start(f, script_late);
	kops_job *job = open_job(&cli, f);
	assert_int_equal(wait_for_job(&cli, job, NULL), CLI_OK);
	kops_close(cli.handle);
	fake_stop(f);
}

static void script_silent(struct fake *f)
{
	fake_greet(f);
	expect_job(f);
	fake_expect(f, FAKE_VERB(CANCEL));
	fake_expect_end(f);
}

/* The fake daemon accepts no second connection for questions. */
static void test_a_silent_kopsd_is_given_up(void **state)
{
	struct fake *f = *state;
	struct cli cli = {.patience_ms = 300};
	fake_start(f, script_silent);
	kops_job *job = open_job(&cli, f);
	assert_int_equal(wait_for_job(&cli, job, NULL), CLI_TIMED_OUT);
	assert_non_null(strstr(cli.why, "kopsd has not answered for "));
	assert_non_null(strstr(cli.why, "systemctl status kopsd"));
	kops_close(cli.handle);
	fake_stop(f);
}

static void test_the_time_is_over(void **state)
{
	struct fake *f = *state;
	struct cli cli = {.flags.timeout_ms = 100};
	fake_start(f, script_silent);
	kops_job *job = open_job(&cli, f);
	assert_int_equal(wait_for_job(&cli, job, NULL), CLI_TIMED_OUT);
	assert_non_null(strstr(cli.why, "after 100 ms and was cancelled"));
	kops_close(cli.handle);
	fake_stop(f);
}

static void script_busy(struct fake *f)
{
	fake_greet(f);
	fake_answer(f, expect_job(f), KOPS_E_BUSY, "the queue is full");
	fake_answer(f, fake_expect(f, FAKE_VERB(SUBMIT))->id, KOPS_E_BUSY, "the queue is full");
	fake_receipt(f, fake_expect(f, FAKE_VERB(SUBMIT))->id);
	fake_expect_end(f);
}

static void test_a_full_queue_is_tried_again(void **state)
{
	struct fake *f = *state;
	struct cli cli = {.handle = NULL};
	fake_start(f, script_busy);
	kops_job *job = open_job(&cli, f);
	assert_int_equal(wait_for_job(&cli, job, NULL), CLI_OK);
	kops_close(cli.handle);
	fake_stop(f);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fake_setup, fake_teardown)
	const struct CMUnitTest tests[] = {
	    TEST(test_a_job_may_take_longer_than_the_handle_waits),
	    TEST(test_a_silent_kopsd_is_given_up),
	    TEST(test_the_time_is_over),
	    TEST(test_a_full_queue_is_tried_again),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
