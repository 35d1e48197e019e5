/* Tests the states of a job, every pair of job.h's diagram, and the queues of a session. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "job/job.h"

enum { STATES = JOB_CANCELLED + 1 };

static void test_moves(void **state)
{
	static const enum job_state allowed[][2] = {
	    {JOB_NEW, JOB_QUEUED},       {JOB_QUEUED, JOB_RUNNING},  {JOB_QUEUED, JOB_FAILED},
	    {JOB_QUEUED, JOB_CANCELLED}, {JOB_RUNNING, JOB_DONE},    {JOB_RUNNING, JOB_FAILED},
	    {JOB_RUNNING, JOB_PAUSED},   {JOB_PAUSED, JOB_RUNNING},  {JOB_PAUSED, JOB_CANCELLED},
	    {JOB_NEW, JOB_READY},        {JOB_READY, JOB_QUEUED},    {JOB_DONE, JOB_READY},
	    {JOB_FAILED, JOB_READY},     {JOB_CANCELLED, JOB_READY},
	};

	(void)state;
	for (int from = 0; from < STATES; from++)
		for (int to = 0; to < STATES; to++) {
			bool expected = false;
			for (size_t i = 0; i < sizeof allowed / sizeof allowed[0]; i++)
				expected |= allowed[i][0] == (enum job_state)from &&
				            allowed[i][1] == (enum job_state)to;
			assert_int_equal(job_may_move((enum job_state)from, (enum job_state)to), expected);
		}
}

/* Except for a prepared job, which becomes ready again. */
static void test_ends_are_final(void **state)
{
	(void)state;
	for (int to = 0; to < STATES; to++) {
		if (to == JOB_READY)
			continue;
		assert_false(job_may_move(JOB_DONE, (enum job_state)to));
		assert_false(job_may_move(JOB_FAILED, (enum job_state)to));
		assert_false(job_may_move(JOB_CANCELLED, (enum job_state)to));
	}
}

/* Makes a job of one op in the queue of this id. */
static struct job *new_job(struct engine *e, struct account *account, struct job_queues *queues, uint32_t id)
{
	struct job *job = job_new(e, account, queues, id, 1, 3);

	assert_non_null(job);
	return job;
}

/* Returns the lane of the queue of this id, found by a job that ends at once. */
static uint64_t lane_of(struct engine *e, struct account *account, struct job_queues *queues, uint32_t id)
{
	struct job *job = new_job(e, account, queues, id);
	uint64_t lane = job->sched.queue->lane;

	job_free(job);
	return lane;
}

/* A queue lasts while it has jobs, and then until another has none. */
static void test_queues(void **state)
{
	struct account account = {.refs = 1};
	struct engine e = {.next_lane = 1};
	struct job_queues queues = {0};
	struct job *job;

	(void)state;
	assert_int_equal(lane_of(&e, &account, &queues, 7), 1);
	assert_int_equal(lane_of(&e, &account, &queues, 7), 1);
	job = new_job(&e, &account, &queues, 8);
	assert_int_equal(lane_of(&e, &account, &queues, 7), 1);
	assert_int_equal(lane_of(&e, &account, &queues, 9), 3);
	assert_int_equal(lane_of(&e, &account, &queues, 7), 4);
	assert_int_equal(lane_of(&e, &account, &queues, 8), 2);
	assert_int_equal(queues.by_id.count, 2);
	job_queues_forget(&queues);
	assert_int_equal(queues.by_id.count, 0);
	job_free(job);
	assert_int_equal(account.refs, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_moves),
	    cmocka_unit_test(test_ends_are_final),
	    cmocka_unit_test(test_queues),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
