/*
 * Tests jobs that wait for buffers that are being made: all start, few in one turn, whatever happens to some.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "dispatch/jobs.h"
#include "dispatch/submit.h"
#include "job/finish.h"
#include "unit/daemon/loop.h"

enum { MANY = 1000 };

static const struct driver driver = {0};

struct fixture {
	uv_loop_t loop;
	struct turns turns;
	struct config config;
	struct engine engine;
	struct device device;
	struct device_info info;
	struct account *user;
	struct job_queues queues;
	struct buffer first, second;
	struct job *jobs[MANY];
};

/* The test's waiters have no sockets. */
static void unwatch(struct turns_waiter *waiter)
{
	(void)waiter;
}

static void progress(struct engine *engine)
{
	(void)engine;
}

static void begin_pending(struct fixture *f, struct buffer *b)
{
	*b = (struct buffer){
	    .engine = &f->engine, .account = f->user, .state = BUFFER_PENDING, .refs = 1, .fd = -1, .of = b};
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof *f);
	struct engine *e = &f->engine;

	uv_loop_init(&f->loop);
	turns_init(&f->turns, &f->loop, NULL, unwatch);
	e->accounts = (struct accounts){.config = &f->config, .sched = &e->sched, .turns = &f->turns};
	accounts_init(&e->accounts);
	e->progress = progress;
	e->devices[0].device = &f->device; /* nothing is dispatched to it, since n_devices is 0 */
	f->device.info = &f->info;
	f->device.driver = &driver;
	f->user = accounts_get(&e->accounts, 1);
	begin_pending(f, &f->first);
	begin_pending(f, &f->second);
	*state = f;
	return f->user ? 0 : -1;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < MANY; i++)
		if (f->jobs[i])
			job_end_queued(f->jobs[i], JOB_CANCELLED, KOPS_E_CANCELLED, NULL);
	assert_int_equal(f->first.refs, 1);
	assert_int_equal(f->second.refs, 1);
	job_queues_forget(&f->queues);
	account_unref(&f->engine.accounts, f->user);
	accounts_clear(&f->engine.accounts);
	close_loop(&f->loop);
	free(f);
	return 0;
}

static void hold(struct job *job, struct buffer *b)
{
	job->uses.list[job->uses.n++] = (struct buffer_use){.buffer = b};
	b->refs++;
	job->sched.blocked |= b->state == BUFFER_PENDING;
}

/* Submits each job in its own queue. */
static void submit(struct fixture *f, int i, struct buffer *a, struct buffer *b)
{
	struct job *job = job_new(&f->engine, f->user, &f->queues, (uint32_t)i, 1, 3);

	assert_non_null(job);
	job->settled = true;
	hold(job, a);
	if (b)
		hold(job, b);
	job_submit(job);
	f->jobs[i] = job;
}

static void submit_all(struct fixture *f)
{
	for (int i = 0; i < MANY; i++)
		submit(f, i, &f->first, NULL);
}

static void make(struct buffer *b)
{
	b->state = BUFFER_READY;
	jobs_unblock(b);
}

static unsigned blocked(const struct fixture *f)
{
	unsigned n = 0;

	for (int i = 0; i < MANY; i++)
		n += f->jobs[i] && f->jobs[i]->sched.blocked;
	return n;
}

static void a_turn_unblocks_few(void **state)
{
	struct fixture *f = *state;
	struct errands *errands = &f->user->errands;

	submit_all(f);
	assert_int_equal(blocked(f), MANY);
	make(&f->first);
	for (unsigned before = blocked(f); before > 0; before = blocked(f)) {
		f->turns.began_ns = UINT64_MAX / 2; /* so that turns do not end by time */
		errands->waiter.take(&errands->waiter);
		assert_in_range(before - blocked(f), 1, ERRANDS_STEPS);
	}
	assert_true(list_is_empty(&errands->waiting));
	turns_leave(&errands->waiter);
}

/* The buffers may be made in any order. */
static void a_job_waits_for_all_of_its_buffers(void **state)
{
	struct fixture *f = *state;
	struct errands *errands = &f->user->errands;

	submit(f, 0, &f->first, &f->second);
	submit(f, 1, &f->second, &f->first);
	submit(f, 2, &f->second, NULL);
	make(&f->second);
	errands_finish(errands);
	assert_true(f->jobs[0]->sched.blocked);
	assert_true(f->jobs[1]->sched.blocked);
	assert_false(f->jobs[2]->sched.blocked);
	make(&f->first);
	errands_finish(errands);
	assert_int_equal(blocked(f), 0);
	submit(f, 3, &f->first, &f->second);
	assert_false(f->jobs[3]->sched.blocked);
}

static void jobs_end_while_they_wait(void **state)
{
	struct fixture *f = *state;

	submit_all(f);
	for (int i = 0; i < MANY; i += 2) {
		job_end_queued(f->jobs[i], JOB_CANCELLED, KOPS_E_CANCELLED, NULL);
		f->jobs[i] = NULL;
	}
	make(&f->first);
	for (int i = 1; i < MANY; i += 4) {
		job_end_queued(f->jobs[i], JOB_CANCELLED, KOPS_E_CANCELLED, NULL);
		f->jobs[i] = NULL;
	}
	errands_finish(&f->user->errands);
	assert_int_equal(blocked(f), 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(a_turn_unblocks_few),
	    TEST(a_job_waits_for_all_of_its_buffers),
	    TEST(jobs_end_while_they_wait),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
