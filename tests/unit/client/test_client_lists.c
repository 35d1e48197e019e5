/* Tests lists of users, sessions and jobs: how pages are joined, and what a daemon may answer instead. */
#include "fake_daemon.h"

static _Thread_local bool send_fails;

/* libkops's and the fake daemon's calls also come here. */
ssize_t send(int fd, const void *data, size_t bytes, int flags)
{
	if (!send_fails)
		return sendto(fd, data, bytes, flags, NULL, 0);
	errno = EACCES;
	return -1;
}

static void greet(struct fake *f)
{
	f->lists = true;
	fake_greet(f);
}

static void answer_users(struct fake *f, uint64_t before, uint32_t uid, unsigned n, uint64_t next)
{
	Kops__V1__Request *r = fake_expect(f, FAKE_VERB(LIST_USERS));
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	Kops__V1__Users page = KOPS__V1__USERS__INIT;
	Kops__V1__Usage usage = KOPS__V1__USAGE__INIT;
	Kops__V1__User users[32], *all[32];
	FAKE_CHECK(f, r->list_users->before == before);
	for (unsigned i = 0; i < n; i++) {
		users[i] = (Kops__V1__User)KOPS__V1__USER__INIT;
		users[i].uid = uid - i;
		users[i].usage = &usage;
		all[i] = &users[i];
	}
	usage.jobs_done = 5, usage.p99_us = 1.5;
	page.n_users = n, page.users = all, page.next = next;
	reply.id = r->id, reply.body_case = KOPS__V1__REPLY__BODY_USERS, reply.users = &page;
	fake_send(f, &reply, -1);
}

static void script_pages(struct fake *f)
{
	greet(f);
	answer_users(f, 0, 4000000000, 32, 3999999969);
	answer_users(f, 3999999969, 1000, 32, 969);
	answer_users(f, 969, 0, 1, 0);
	fake_expect_end(f);
}

static void test_pages(void **state)
{
	struct fake *f = *state;
	kops_list *list = NULL;
	fake_start(f, script_pages);
	kops *k = fake_open(f);
	assert_int_equal(kops_list_users(k, &list), 0);
	assert_int_equal(kops_list_count(list), 65);
	assert_int_equal(kops_list_user(list, 0)->uid, 4000000000);
	assert_int_equal(kops_list_user(list, 32)->uid, 1000);
	assert_int_equal(kops_list_user(list, 64)->uid, 0);
	for (size_t i = 0; i < 65; i++) {
		assert_int_equal(kops_list_user(list, i)->usage->jobs_done, 5);
		assert_true(kops_list_user(list, i)->usage->p99_us == 1.5);
	}
	assert_null(kops_list_user(list, 65));
	assert_null(kops_list_session(list, 0));
	assert_null(kops_list_job(list, 0));
	kops_list_free(list);
	kops_list_free(NULL);
	kops_close(k);
	fake_stop(f);
}

static void script_sessions(struct fake *f)
{
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	Kops__V1__Sessions page = KOPS__V1__SESSIONS__INIT;
	Kops__V1__Session busy = KOPS__V1__SESSION__INIT, idle = busy, *all[] = {&busy, &idle};
	Kops__V1__RunningJob job = KOPS__V1__RUNNING_JOB__INIT;
	char long_name[201] = "";
	uint64_t extents[] = {12, 11, 10, 9, 8, 7, 6, 5, 4, 3}; /* more than kops.h has room for */
	greet(f);
	memset(long_name, 'x', 200);
	busy.session = 9, busy.uid = 1000, busy.pid = 77, busy.client = "caf\xc3\xa9", busy.running = 2;
	busy.oldest = &job;
	job.device = "gpu0", job.op = "gemm", job.kernel = long_name, job.ops = 3, job.parts = 700;
	job.dtype = KOPS__V1__DTYPE__F16, job.shape = extents, job.n_shape = 10;
	job.parts_done = 20, job.running_us = 1e6, job.estimate_us = 38e6;
	idle.session = 4;
	page.n_sessions = 2, page.sessions = all;
	reply.id = fake_expect(f, FAKE_VERB(LIST_SESSIONS))->id;
	reply.body_case = KOPS__V1__REPLY__BODY_SESSIONS, reply.sessions = &page;
	fake_send(f, &reply, -1);
	fake_expect_end(f);
}

static void test_sessions(void **state)
{
	struct fake *f = *state;
	kops_list *list = NULL;
	fake_start(f, script_sessions);
	kops *k = fake_open(f);
	assert_int_equal(kops_list_sessions(k, &list), 0);
	const kops_session_info *busy = kops_list_session(list, 0), *idle = kops_list_session(list, 1);
	assert_int_equal(busy->pid, 77);
	assert_string_equal(busy->client, "caf\xc3\xa9");
	assert_string_equal(busy->oldest->device, "gpu0");
	assert_int_equal(strlen(busy->oldest->kernel), CLIENT_NAME_BYTES);
	assert_int_equal(busy->oldest->parts, 700);
	assert_int_equal(busy->oldest->parts_done, 20);
	assert_true(busy->oldest->estimate_us == 38e6);
	assert_int_equal(busy->oldest->shape.dtype, KOPS_F16);
	assert_int_equal(busy->oldest->shape.rank, KOPS_VIEW_AXES);
	assert_int_equal(busy->oldest->shape.extents[KOPS_VIEW_AXES - 1], 5);
	assert_int_equal(idle->session, 4);
	assert_null(idle->oldest);
	assert_int_equal(idle->usage->jobs_done, 0);
	kops_list_free(list);
	kops_close(k);
	fake_stop(f);
}

static void answer_jobs(struct fake *f, uint64_t number, unsigned n, uint64_t next)
{
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	Kops__V1__TracedJobs page = KOPS__V1__TRACED_JOBS__INIT;
	Kops__V1__TracedJob jobs[32], *all[32];
	for (unsigned i = 0; i < n; i++) {
		jobs[i] = (Kops__V1__TracedJob)KOPS__V1__TRACED_JOB__INIT;
		jobs[i].number = number - i, jobs[i].status = i ? 0 : -13, jobs[i].op = "add";
		all[i] = &jobs[i];
	}
	page.n_jobs = n, page.jobs = all, page.next = next;
	reply.id = fake_expect(f, FAKE_VERB(TRACE))->id;
	reply.body_case = KOPS__V1__REPLY__BODY_TRACED_JOBS, reply.traced_jobs = &page;
	fake_send(f, &reply, -1);
}

static void script_jobs(struct fake *f)
{
	greet(f);
	answer_jobs(f, 100, 32, 69);
	answer_jobs(f, 68, 32, 37);
	answer_jobs(f, 100, 32, 69);
	answer_jobs(f, 100, 32, 69);
	fake_expect_end(f);
}

static void test_jobs_after_a_number_and_so_many(void **state)
{
	struct fake *f = *state;
	kops_list *list = NULL;
	fake_start(f, script_jobs);
	kops *k = fake_open(f);
	assert_int_equal(kops_list_jobs(k, 60, 0, &list), 0);
	assert_int_equal(kops_list_count(list), 40);
	assert_int_equal(kops_list_job(list, 39)->number, 61);
	assert_int_equal(kops_list_job(list, 0)->status, KOPS_E_BUSY);
	assert_string_equal(kops_list_job(list, 1)->op, "add");
	kops_list_free(list);
	assert_int_equal(kops_list_jobs(k, 0, 5, &list), 0);
	assert_int_equal(kops_list_count(list), 5);
	kops_list_free(list);
	assert_int_equal(kops_list_jobs(k, 100, 5, &list), 0);
	assert_int_equal(kops_list_count(list), 0);
	kops_list_free(list);
	kops_close(k);
	fake_stop(f);
}

static void script_old(struct fake *f)
{
	fake_greet(f);
	fake_answer(f, fake_expect(f, FAKE_VERB(PING))->id, 0, ""); /* nothing else was sent before */
	fake_expect_end(f);
}

static void test_an_old_daemon_is_not_asked(void **state)
{
	struct fake *f = *state;
	kops_list *list = NULL;
	fake_start(f, script_old);
	kops *k = fake_open(f);
	assert_int_equal(kops_list_users(k, &list), KOPS_E_UNSUPPORTED);
	assert_int_equal(kops_list_jobs(k, 0, 0, &list), KOPS_E_UNSUPPORTED);
	assert_non_null(strstr(kops_error(k), "too old"));
	assert_null(list);
	assert_int_equal(kops_ping(k), 0);
	kops_close(k);
	fake_stop(f);
}

/* The Welcome comes after the call: until then it is unknown what the daemon supports. */
static void test_the_greeting_is_waited_for(void **state)
{
	struct fake *f = *state;
	kops_list *list = NULL;
	kops *k = fake_open_start(f, FAKE_PATIENCE_MS);
	fake_start(f, script_pages);
	assert_int_equal(kops_list_users(k, &list), 0);
	assert_int_equal(kops_list_count(list), 65);
	kops_list_free(list);
	kops_close(k);
	fake_stop(f);
}

static void test_an_old_daemon_that_greets_late(void **state)
{
	struct fake *f = *state;
	kops_list *list = NULL;
	kops *k = fake_open_start(f, FAKE_PATIENCE_MS);
	fake_start(f, script_old);
	assert_int_equal(kops_list_sessions(k, &list), KOPS_E_UNSUPPORTED);
	assert_int_equal(kops_ping(k), 0);
	kops_close(k);
	fake_stop(f);
}

static void script_not_asked(struct fake *f)
{
	greet(f);
	fake_answer(f, fake_expect(f, FAKE_VERB(PING))->id, 0, "");
	fake_expect_end(f);
}

/* Such a call would otherwise wait for an answer that cannot come. */
static void test_a_call_that_cannot_be_sent_after_the_greeting(void **state)
{
	struct fake *f = *state;
	kops_list *list = NULL;
	kops *k = fake_open_start(f, FAKE_PATIENCE_MS);
	fake_start(f, script_not_asked);
	send_fails = true;
	int status = kops_list_users(k, &list);
	send_fails = false;
	assert_int_equal(status, KOPS_E_SYSTEM);
	assert_non_null(strstr(kops_error(k), "cannot send to kopsd"));
	assert_null(list);
	assert_int_equal(kops_ping(k), 0);
	kops_close(k);
	fake_stop(f);
}

static void script_nonsense(struct fake *f)
{
	greet(f);
	answer_users(f, 0, 1000, 1, 1000);
	answer_users(f, 1000, 1000, 1, 1000); /* for ever */
	fake_answer(f, fake_expect(f, FAKE_VERB(LIST_SESSIONS))->id, 0, "");
	fake_answer(f, fake_expect(f, FAKE_VERB(TRACE))->id, KOPS_E_BUSY, "not now");
	fake_expect_end(f);
}

static void test_nonsense(void **state)
{
	struct fake *f = *state;
	kops_list *list = NULL;
	fake_start(f, script_nonsense);
	kops *k = fake_open(f);
	assert_int_equal(kops_list_users(k, &list), KOPS_E_PROTOCOL);
	assert_int_equal(kops_list_sessions(k, &list), KOPS_E_PROTOCOL);
	assert_int_equal(kops_list_jobs(k, 0, 0, &list), KOPS_E_BUSY);
	assert_string_equal(kops_error(k), "not now");
	assert_null(list);
	kops_close(k);
	fake_stop(f);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fake_setup, fake_teardown)
	const struct CMUnitTest tests[] = {
	    TEST(test_pages),
	    TEST(test_sessions),
	    TEST(test_jobs_after_a_number_and_so_many),
	    TEST(test_an_old_daemon_is_not_asked),
	    TEST(test_the_greeting_is_waited_for),
	    TEST(test_an_old_daemon_that_greets_late),
	    TEST(test_a_call_that_cannot_be_sent_after_the_greeting),
	    TEST(test_nonsense),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
