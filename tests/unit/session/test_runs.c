/* Tests Submit and Run: the limits before a job is made, again when it is made, and what happens to it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "unit/served.h"
#include "unit/session/copies.h"

static struct config settings;

static int setup(void **state)
{
	settings = kopsd->config;
	*state = copies_open();
	return 0;
}

static void go_on(struct client *c)
{
	char why[WHY_BYTES];

	assert_int_equal(request_resume(c->session, why), 0);
}

/* Tests change limits, and may fail while jobs wait. */
static int teardown(void **state)
{
	kopsd->config = settings;
	kopsd->sessions.stopping = false;
	copies_let_go(*state);
	client_leave(*state);
	return 0;
}

/* Submits a job of this id, which waits. */
static struct job *submit_held(struct client *c, uint64_t id)
{
	struct copies m;

	copies_set(&m, id, 1);
	copies_handle(c, &m.request);
	return idmap_get(&c->session->jobs, id);
}

static const Kops__V1__Reply *look_at_refusal(struct client *c, uint64_t id, int status, const char *why)
{
	const Kops__V1__Reply *reply = client_look(c, NULL);

	assert_non_null(reply);
	assert_int_equal(reply->id, id);
	assert_int_equal(reply->status, status);
	assert_string_equal(reply->message, why);
	return reply;
}

static void check_refusal(struct client *c, uint64_t id, int status, const char *why)
{
	look_at_refusal(c, id, status, why);
	assert_null(idmap_get(&c->session->jobs, id));
}

static void check_busy(struct client *c, uint64_t id, uint64_t retry_after_us, const char *why)
{
	assert_int_equal(look_at_refusal(c, id, KOPS_E_BUSY, why)->retry_after_us, retry_after_us);
}

static void await_receipt(struct client *c, uint64_t id)
{
	const Kops__V1__Reply *reply = client_await(c);

	assert_int_equal(reply->id, id);
	assert_int_equal(reply->status, 0);
	assert_int_equal(reply->body_case, KOPS__V1__REPLY__BODY_RECEIPT);
}

/* ---- Limits ---- */

static double *backlog_us(void)
{
	return &kopsd->engine.sched.devices[0].backlog_us;
}

static void a_session_has_so_many_jobs(void **state)
{
	struct client *c = *state;

	kopsd->config.max_jobs = 2;
	copies_hold(c);
	assert_non_null(submit_held(c, 101));
	assert_non_null(submit_held(c, 102));
	assert_null(submit_held(c, 103));
	check_busy(c, 103, 1000,
	           "the limit of unanswered jobs of this session is reached (max-jobs); try again in 1 ms");
	assert_int_equal(c->session->account->jobs, 2);
	copies_let_go(c);
	await_receipt(c, 101);
	await_receipt(c, 102);
}

/* Jobs of the user's other sessions count. */
static void a_user_has_so_many_jobs(void **state)
{
	struct client *c = *state, *other = copies_open();

	c->session->account->limits.max_jobs_per_uid = 2;
	copies_hold(c);
	copies_hold(other);
	assert_non_null(submit_held(c, 101));
	assert_non_null(submit_held(other, 101));
	assert_null(submit_held(c, 102));
	check_busy(
	    c, 102, 1000,
	    "the limit of unanswered jobs of this user is reached (max-jobs-per-uid); try again in 1 ms");
	copies_let_go(c);
	copies_let_go(other);
	await_receipt(c, 101);
	await_receipt(other, 101);
	client_leave(other);
}

/* The time is a sixteenth of what is queued, but at least a millisecond. */
static void how_long_to_wait_for_other_jobs(void **state)
{
	static const struct {
		double backlog_us;
		uint64_t retry_after_us;
		const char *why;
	} rows[] = {
	    {1600000, 100000,
	     "the limit of unanswered jobs of this session is reached (max-jobs); try again in 100 ms"},
	    {16001, 1000,
	     "the limit of unanswered jobs of this session is reached (max-jobs); try again in 1 ms"},
	    {17600, 1100,
	     "the limit of unanswered jobs of this session is reached (max-jobs); try again in 1 ms"},
	    {15000, 1000,
	     "the limit of unanswered jobs of this session is reached (max-jobs); try again in 1 ms"},
	};
	struct client *c = *state;

	kopsd->config.max_jobs = 0;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		*backlog_us() = rows[i].backlog_us;
		assert_null(submit_held(c, 101));
		check_busy(c, 101, rows[i].retry_after_us, rows[i].why);
	}
	*backlog_us() = 0;
}

/* A refused job may come back when the queue is as short as allowed. */
static void a_device_has_a_queue_of_so_much(void **state)
{
	struct client *c = *state;
	double limit_us = (double)kopsd->config.max_backlog * 1e3;
	double *mine_us = &c->session->account->flow.devices[0].backlog_us;

	copies_hold(c);
	*mine_us = *backlog_us() = limit_us;
	assert_non_null(submit_held(c, 101));
	*mine_us = *backlog_us() = limit_us + 250000;
	assert_null(submit_held(c, 102));
	check_busy(c, 102, 250000, "the device's queue is full (max-backlog); try again in 250 ms");
	*mine_us = limit_us; /* an equal share */
	assert_non_null(submit_held(c, 103));
	*mine_us = *backlog_us() = 0;
	copies_let_go(c);
	await_receipt(c, 101);
	await_receipt(c, 103);
	*mine_us = *backlog_us() = 0;
}

static void requests_of_one_id(void **state)
{
	struct client *c = *state;
	struct copies m;

	copies_hold(c);
	assert_non_null(submit_held(c, 101));
	copies_set(&m, 101, 1);
	copies_handle(c, &m.request);
	assert_int_equal(client_look(c, NULL)->status, KOPS_E_EXISTS);
	assert_int_equal(c->session->jobs.count, 1);
	copies_let_go(c);
	await_receipt(c, 101);
	copies_hold(c);
	assert_non_null(submit_held(c, 101)); /* it has been answered */
	copies_let_go(c);
	await_receipt(c, 101);
}

static void no_job_begins_while_kopsd_stops(void **state)
{
	struct client *c = *state;

	kopsd->sessions.stopping = true;
	assert_null(submit_held(c, 101));
	kopsd->sessions.stopping = false;
	check_refusal(c, 101, KOPS_E_SHUTDOWN, "kopsd is stopping; connect again to reach its successor");
}

/* ---- Jobs of many ops, made step by step ---- */

/* Begins a long job, and goes on until `steps` steps are left. Returns how many steps it took. */
static unsigned make_long(struct client *c, uint64_t id, unsigned steps)
{
	struct copies m;
	unsigned n = 0;

	copies_set(&m, id, COPIES_MAX);
	copies_handle(c, &m.request);
	for (; c->session->midway && n < steps; n++)
		go_on(c);
	return n;
}

static void a_long_job_is_made_in_steps(void **state)
{
	struct client *c = *state;
	unsigned n = make_long(c, 101, UINT_MAX);

	assert_true(n >= 5); /* unpacked, 16 and 4 ops bound, 8, 8 and 4 planned, entered */
	await_receipt(c, 101);
	assert_int_equal(make_long(c, 102, n - 1), n - 1);
	assert_non_null(c->session->midway);
	assert_int_equal(c->session->jobs.count, 0);
	go_on(c);
	assert_null(c->session->midway);
	await_receipt(c, 102);
}

static void a_short_job_is_made_at_once(void **state)
{
	struct client *c = *state;
	struct copies m;

	copies_set(&m, 101, 8);
	copies_handle(c, &m.request);
	assert_null(c->session->midway);
	await_receipt(c, 101);
	copies_set(&m, 102, 9);
	copies_handle(c, &m.request);
	assert_non_null(c->session->midway);
	while (c->session->midway)
		go_on(c);
	await_receipt(c, 102);
}

/* Others had turns meanwhile, so what was allowed at the beginning may not be allowed any more. */
static void limits_count_when_it_is_made(void **state)
{
	struct client *c = *state;
	unsigned n = make_long(c, 101, UINT_MAX);
	struct buffer *b = copies_buffer(c);
	unsigned refs;

	await_receipt(c, 101);
	refs = b->refs;
	make_long(c, 102, n - 1);
	kopsd->sessions.stopping = true;
	go_on(c);
	kopsd->sessions.stopping = false;
	check_refusal(c, 102, KOPS_E_SHUTDOWN, "kopsd is stopping; connect again to reach its successor");
	assert_int_equal(b->refs, refs);
	make_long(c, 103, n - 1);
	kopsd->config.max_jobs = 0;
	go_on(c);
	check_busy(c, 103, 1000,
	           "the limit of unanswered jobs of this session is reached (max-jobs); try again in 1 ms");
	assert_int_equal(b->refs, refs);
	assert_int_equal(c->session->account->jobs, 0);
}

/* ---- Properties of a job ---- */

static void a_job_has_what_its_message_says(void **state)
{
	struct client *c = *state;
	struct copies m;
	const struct job *job;

	copies_hold(c);
	copies_set(&m, 101, 2);
	m.submit.priority = KOPS__V1__PRIORITY__HIGH;
	m.submit.timed = true;
	m.submit.deadline_us = 3600000000;
	copies_handle(c, &m.request);
	job = idmap_get(&c->session->jobs, 101);
	assert_int_equal(job->sched.priority, KOPS_HIGH);
	assert_true(job->run.timed);
	assert_int_equal(job->run.n_ops, 2);
	assert_int_equal(job->arrived_ns, kopsd->sessions.turns.began_ns);
	assert_int_equal(job->deadline_ns, job->arrived_ns + 3600000000000);
	assert_ptr_equal(job->session, c->session);
	assert_ptr_equal(job->usage, &c->session->usage);
	assert_false(job->by_ring);
	assert_int_equal(job->number, 0);
	copies_let_go(c);
	await_receipt(c, 101);
	assert_int_equal(c->session->usage.jobs_done, 1);
}

/* A deadline further away than the clock's end is none. */
static void deadlines_that_never_come(void **state)
{
	static const uint64_t us[] = {0, UINT64_MAX, UINT64_MAX / 1000, UINT64_MAX / 1000 + 1};
	struct client *c = *state;
	struct copies m;

	for (size_t i = 0; i < sizeof us / sizeof us[0]; i++) {
		copies_hold(c);
		copies_set(&m, 101, 1);
		m.submit.deadline_us = us[i];
		copies_handle(c, &m.request);
		assert_int_equal(((struct job *)idmap_get(&c->session->jobs, 101))->deadline_ns, 0);
		copies_let_go(c);
		await_receipt(c, 101);
	}
}

static const struct trace_entry *last_traced(void)
{
	return trace_at(&kopsd->sessions.trace, kopsd->sessions.trace.n);
}

static void jobs_leave_a_trace(void **state)
{
	struct client *c = *state;
	const struct trace_entry *entry;
	struct copies m;

	copies_set(&m, 101, 3);
	copies_handle(c, &m.request);
	await_receipt(c, 101);
	entry = last_traced();
	assert_int_equal(entry->session, c->session->serial);
	assert_int_equal(entry->job, 101);
	assert_int_equal(entry->status, 0);
	assert_int_equal(entry->n_ops, 3);
	assert_int_equal(entry->uid, getuid());
	assert_int_equal(entry->pid, getpid());
	assert_string_equal(entry->op, "copy");
	assert_string_equal(entry->device, "cpu");
	assert_true(*entry->kernel);
	assert_true(entry->cost.bytes == 3 * 128);
	assert_true(entry->queue_us >= 0 && entry->total_us >= entry->queue_us + entry->compute_us);
	assert_false(entry->prepared || entry->by_ring || entry->graph);
	copies_hold(c);
	submit_held(c, 102);
	copies_buffer(c)->failure = KOPS_E_NOMEM;
	copies_buffer(c)->state = BUFFER_FAILED;
	jobs_unblock(copies_buffer(c));
	assert_int_equal(client_await(c)->status, KOPS_E_NOMEM);
	assert_int_equal(last_traced()->job, 102);
	assert_int_equal(last_traced()->status, KOPS_E_NOMEM);
	copies_buffer(c)->state = BUFFER_READY;
}

/* ---- Prepared jobs ---- */

static const Kops__V1__Receipt *prepare(struct client *c, uint64_t number, bool only)
{
	const Kops__V1__Reply *reply;
	struct copies m;

	copies_set(&m, ++c->last_id, 1);
	m.submit.prepare = number;
	m.submit.only_prepare = only;
	copies_handle(c, &m.request);
	reply = client_await(c);
	assert_int_equal(reply->status, 0);
	return reply->receipt;
}

static void send_run(struct client *c, uint64_t number, uint64_t deadline_us)
{
	CLIENT_REQUEST(c, r, Run, run, RUN);
	r_body.prepared = number;
	r_body.deadline_us = deadline_us;
	copies_handle(c, &r);
	while (c->session->midway)
		go_on(c);
}

static const Kops__V1__Receipt *run(struct client *c, uint64_t number)
{
	const Kops__V1__Reply *reply;

	send_run(c, number, 0);
	reply = client_await(c);
	assert_int_equal(reply->status, 0);
	return reply->receipt;
}

static void a_prepared_job_runs_again(void **state)
{
	struct client *c = *state;
	const Kops__V1__Receipt *receipt = prepare(c, 5, false);

	assert_true(receipt->prepared && !receipt->as_before);
	receipt = run(c, 5);
	assert_true(receipt->prepared && receipt->as_before);
	assert_true(last_traced()->prepared);
}

static void a_job_may_be_prepared_only(void **state)
{
	struct client *c = *state;
	uint64_t before = kopsd->sessions.trace.n;
	const Kops__V1__Receipt *receipt = prepare(c, 5, true);

	assert_true(receipt->prepared);
	assert_int_equal(receipt->n_ops, 1);
	assert_int_equal(kopsd->sessions.trace.n, before); /* it has not run */
	assert_int_equal(c->session->jobs.count, 0);
	assert_true(run(c, 5)->prepared);
	assert_int_equal(kopsd->sessions.trace.n, before + 1);
}

/* The plan may have changed. */
static void a_job_whose_plan_is_old_is_made_anew(void **state)
{
	struct client *c = *state;

	prepare(c, 5, false);
	assert_true(run(c, 5)->as_before);
	kopsd->engine.plans++;
	assert_false(run(c, 5)->as_before);
	assert_true(run(c, 5)->as_before);
}

/* The plan was for memory that is copied in another way. */
static void a_job_of_memory_that_was_pinned_since_is_made_anew(void **state)
{
	struct client *c = *state;

	prepare(c, 5, false);
	assert_true(run(c, 5)->as_before);
	copies_buffer(c)->memory.pin = MEMORY_PINNED;
	assert_false(run(c, 5)->as_before);
	assert_true(run(c, 5)->as_before);
	copies_buffer(c)->memory.pin = MEMORY_PAGEABLE;
	assert_false(run(c, 5)->as_before);
}

static void what_is_not_prepared_does_not_run(void **state)
{
	struct client *c = *state;

	send_run(c, 6, 0);
	check_refusal(c, c->last_id, KOPS_E_NOT_FOUND, "no job is prepared as 6; send its Submit again");
	prepare(c, 5, false);
	copies_hold(c);
	/* Made anew, like a job whose buffer is being made. */
	kopsd->engine.plans++;
	send_run(c, 5, 0);
	send_run(c, 5, 0);
	check_refusal(c, c->last_id, KOPS_E_EXISTS, "prepared job 5 is still running; wait for its reply");
	copies_let_go(c);
	assert_int_equal(client_await(c)->status, 0);
	kopsd->sessions.stopping = true;
	send_run(c, 5, 0);
	kopsd->sessions.stopping = false;
	check_refusal(c, c->last_id, KOPS_E_SHUTDOWN,
	              "kopsd is stopping; connect again to reach its successor");
}

/* A Run's deadline replaces its Submit's, also if the job is made anew. */
static void runs_have_deadlines(void **state)
{
	struct client *c = *state;
	struct copies m;

	copies_set(&m, 101, 1);
	m.submit.prepare = 5;
	m.submit.deadline_us = 3600000000;
	copies_handle(c, &m.request);
	await_receipt(c, 101);
	for (int i = 0; i < 2; i++) {
		uint64_t deadline_us = i * 7200000000;
		const struct job *job;

		copies_hold(c);
		kopsd->engine.plans++;
		send_run(c, 5, deadline_us);
		job = idmap_get(&c->session->jobs, c->last_id);
		assert_int_equal(job->deadline_ns - job->arrived_ns,
		                 1000 * (deadline_us ? deadline_us : 3600000000));
		copies_let_go(c);
		await_receipt(c, c->last_id);
	}
}

static void without_room_a_job_runs_unless_it_is_only_prepared(void **state)
{
	struct client *c = *state;
	uint64_t *limit = &c->session->account->limits.max_prepared_per_uid, before = *limit;
	struct copies m;

	*limit = 0;
	assert_false(prepare(c, 5, false)->prepared);
	copies_set(&m, 101, 1);
	m.submit.prepare = 5;
	m.submit.only_prepare = true;
	copies_handle(c, &m.request);
	assert_int_equal(client_look(c, NULL)->status, KOPS_E_QUOTA);
	*limit = before;
	assert_int_equal(c->session->prepared.count, 0);
	assert_true(prepare(c, 5, true)->prepared);
}

/* A message is not kept if no job can be made of it, unless it was kept before. */
static void what_cannot_be_made_is_not_prepared(void **state)
{
	struct client *c = *state;
	struct copies m;
	struct buffer *b;

	copies_set(&m, 101, 1);
	m.submit.prepare = 5;
	m.y.buffer = 9;
	copies_handle(c, &m.request);
	assert_int_equal(client_look(c, NULL)->status, KOPS_E_NOT_FOUND);
	assert_int_equal(c->session->prepared.count, 0);
	assert_int_equal(c->session->account->prepared_bytes, 0);
	prepare(c, 5, false);
	b = idmap_remove(&c->session->buffers, COPIES_BUFFER);
	kopsd->engine.plans++;
	send_run(c, 5, 0);
	check_refusal(c, c->last_id, KOPS_E_NOT_FOUND, "op 1 of 1 (copy): there is no buffer 1");
	assert_int_equal(c->session->prepared.count, 1);
	assert_int_equal(idmap_put(&c->session->buffers, COPIES_BUFFER, b), 0);
	assert_false(run(c, 5)->as_before);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
SERVED_MAIN(TEST(a_session_has_so_many_jobs), TEST(a_user_has_so_many_jobs),
            TEST(how_long_to_wait_for_other_jobs), TEST(a_device_has_a_queue_of_so_much),
            TEST(requests_of_one_id), TEST(no_job_begins_while_kopsd_stops), TEST(a_long_job_is_made_in_steps),
            TEST(a_short_job_is_made_at_once), TEST(limits_count_when_it_is_made),
            TEST(a_job_has_what_its_message_says), TEST(deadlines_that_never_come), TEST(jobs_leave_a_trace),
            TEST(a_prepared_job_runs_again), TEST(a_job_may_be_prepared_only),
            TEST(a_job_whose_plan_is_old_is_made_anew),
            TEST(a_job_of_memory_that_was_pinned_since_is_made_anew), TEST(what_is_not_prepared_does_not_run),
            TEST(runs_have_deadlines), TEST(without_room_a_job_runs_unless_it_is_only_prepared),
            TEST(what_cannot_be_made_is_not_prepared))
