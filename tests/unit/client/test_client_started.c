/* Tests libkops against a scripted daemon: handles and buffers that are started without waiting for them. */
#include "fake_daemon.h"

/* What a callback saw. */
struct seen {
	unsigned calls;
	int status;
	kops_buffer *buffer;
	bool frees;
};

static void note_buffer(kops_buffer *b, int status, void *user)
{
	struct seen *seen = user;
	kops_buffer *other = NULL;
	seen->calls++;
	seen->status = status;
	seen->buffer = b;
	assert_int_equal(kops_alloc(b->k, 64, KOPS_SHARED, NULL, &other), KOPS_E_STATE);
	assert_int_equal(kops_process(b->k), KOPS_E_STATE);
	if (seen->frees)
		kops_free(b);
}

static kops_buffer *start_alloc(kops *k, unsigned flags, struct seen *seen)
{
	kops_buffer *b = NULL;
	if (kops_alloc_start(k, 64, flags, NULL, note_buffer, seen, &b) < 0)
		fail_msg("kops_alloc_start: %s", kops_error(k));
	return b;
}

/* Goes once round an event loop. */
static int turn(kops *k)
{
	struct pollfd p = {.fd = kops_fd(k), .events = kops_events(k)};
	int timeout = kops_timeout(k);
	poll(&p, p.fd >= 0, timeout < 0 || timeout > 1000 ? 1000 : timeout);
	return kops_process(k);
}

static void turn_until(kops *k, const struct seen *seen, unsigned calls)
{
	while (seen->calls < calls)
		turn(k);
}

/* ---- Buffers ---- */

static void script_slow_lend(struct fake *f)
{
	fake_greet(f);
	Kops__V1__Request *r = fake_expect(f, FAKE_VERB(ALLOC));
	uint64_t id = r->id, resident;
	FAKE_CHECK(f, r->alloc->buffer == 1 && r->alloc->bytes == 64);
	resident = fake_expect(f, FAKE_VERB(ALLOC))->id;
	FAKE_CHECK(f, fake_wait(f, 1)); /* both are in flight, and the caller goes on */
	f->memfd = fake_memfd(64);
	fake_lent(f, id, f->memfd, "");
	fake_lent(f, resident, -1, "gpu1");
	fake_expect_end(f);
}

static void test_alloc_start(void **state)
{
	struct fake *f = *state;
	struct seen shared = {0}, resident = {0};
	fake_start(f, script_slow_lend);
	kops *k = fake_open(f);
	kops_buffer *a = start_alloc(k, KOPS_SHARED, &shared), *b = start_alloc(k, KOPS_RESIDENT, &resident);
	assert_null(kops_data(a));
	assert_int_equal(kops_size(a), 64);
	assert_int_equal(kops_buffer_wait(a, 0), KOPS_E_TIMEOUT);
	assert_int_equal(kops_process(k), 0);
	fake_reach(f, 1);
	int ended = 0;
	while (ended < 2)
		ended += turn(k);
	assert_int_equal(shared.calls, 1);
	assert_int_equal(shared.status, 0);
	assert_ptr_equal(shared.buffer, a);
	assert_int_equal(resident.calls, 1);
	assert_ptr_equal(resident.buffer, b);
	assert_int_equal(((unsigned char *)kops_data(a))[63], 0);
	assert_int_equal(kops_buffer_wait(a, -1), 0);
	assert_string_equal(kops_buffer_error(a), "");
	kops_close(k);
	fake_stop(f);
}

static void script_job_before_buffer(struct fake *f)
{
	fake_greet(f);
	Kops__V1__Request *r = fake_expect(f, FAKE_VERB(IMPORT));
	uint64_t import = r->id, submit = fake_expect(f, FAKE_VERB(SUBMIT))->id;
	fake_answer(f, import, 0, "");
	fake_receipt(f, submit);
	fake_expect_end(f);
}

/* The daemon lets the job wait; imported memory is here at once. */
static void test_jobs_may_use_a_buffer_that_is_being_made(void **state)
{
	struct fake *f = *state;
	struct seen seen = {0};
	kops_buffer *b = NULL;
	int memfd = fake_memfd(64);
	fake_start(f, script_job_before_buffer);
	kops *k = fake_open(f);
	assert_int_equal(kops_import_start(k, memfd, 64, 0, note_buffer, &seen, &b), 0);
	strcpy(kops_data(b), "mine");
	kops_job *job = fake_transpose(k, fake_matrix(b, 0), fake_matrix(b, 32));
	assert_int_equal(kops_run(job), 0);
	assert_int_equal(seen.calls, 1);
	kops_close(k);
	close(memfd);
	fake_stop(f);
}

static void script_refused(struct fake *f)
{
	fake_greet(f);
	uint64_t alloc = fake_expect(f, FAKE_VERB(ALLOC))->id, submit = fake_expect(f, FAKE_VERB(SUBMIT))->id;
	fake_answer(f, alloc, KOPS_E_QUOTA, "over 1 GiB of user 7");
	fake_answer(f, submit, KOPS_E_NOT_FOUND, "no buffer 1");
	fake_expect_end(f);
}

static void test_failure(void **state)
{
	struct fake *f = *state;
	struct seen seen = {0};
	fake_start(f, script_refused);
	kops *k = fake_open(f);
	kops_buffer *b = start_alloc(k, KOPS_RESIDENT, &seen);
	kops_job *job = fake_transpose(k, fake_matrix(b, 0), fake_matrix(b, 32));
	assert_int_equal(kops_run(job), KOPS_E_QUOTA);
	assert_string_equal(kops_error(k), "a buffer of this job could not be allocated: over 1 GiB of user 7");
	assert_int_equal(seen.calls, 1);
	assert_int_equal(seen.status, KOPS_E_QUOTA);
	assert_string_equal(kops_buffer_error(b), "over 1 GiB of user 7");
	assert_int_equal(kops_buffer_wait(b, -1), KOPS_E_QUOTA);
	assert_string_equal(kops_error(k), "over 1 GiB of user 7");
	assert_int_equal(kops_submit(job, NULL, NULL), KOPS_E_QUOTA);
	assert_string_equal(kops_error(k),
	                    "op 0 uses a buffer that could not be allocated: over 1 GiB of user 7");
	kops_free(b);
	kops_close(k);
	fake_stop(f);
}

static void test_wrong_arguments(void **state)
{
	struct fake *f = *state;
	kops_buffer *none = NULL;
	fake_start(f, fake_greet);
	kops *k = fake_open(f);
	assert_int_equal(kops_alloc_start(k, 0, KOPS_SHARED, NULL, NULL, NULL, &none), KOPS_E_INVALID);
	assert_int_equal(kops_alloc_start(k, 8, KOPS_SHARED, "cpu", NULL, NULL, &none), KOPS_E_INVALID);
	assert_int_equal(kops_import_start(k, -1, 8, 0, NULL, NULL, &none), KOPS_E_FD);
	assert_null(none);
	kops_close(k);
	fake_stop(f);
}

/* ---- Freeing ---- */

static void script_freed_early(struct fake *f)
{
	fake_greet(f);
	uint64_t alloc = fake_expect(f, FAKE_VERB(ALLOC))->id, submit = fake_expect(f, FAKE_VERB(SUBMIT))->id;
	FAKE_CHECK(f, fake_wait(f, 1));
	f->memfd = fake_memfd(64);
	fake_lent(f, alloc, f->memfd, "");
	FAKE_CHECK(f, fake_expect(f, FAKE_VERB(DROP))->drop->buffer == 1);
	fake_receipt(f, submit);
	fake_expect_end(f);
}

/* The job finishes with the buffer; no callback is called. */
static void test_free_while_it_is_being_made(void **state)
{
	struct fake *f = *state;
	struct seen seen = {0};
	fake_start(f, script_freed_early);
	kops *k = fake_open(f);
	kops_buffer *b = start_alloc(k, KOPS_SHARED, &seen);
	kops_job *job = fake_transpose(k, fake_matrix(b, 0), fake_matrix(b, 32));
	assert_int_equal(kops_submit(job, NULL, NULL), 0);
	kops_free(b);
	fake_reach(f, 1);
	assert_int_equal(kops_wait(job, -1), 0);
	assert_int_equal(seen.calls, 0);
	assert_int_equal(kops_submit(job, NULL, NULL), KOPS_E_INVALID);
	kops_close(k);
	fake_stop(f);
}

static void script_freed_by_callback(struct fake *f)
{
	fake_greet(f);
	uint64_t waited = fake_expect(f, FAKE_VERB(ALLOC))->id, first = fake_expect(f, FAKE_VERB(ALLOC))->id;
	fake_lent(f, first, -1, "gpu1");
	FAKE_CHECK(f, fake_expect(f, FAKE_VERB(DROP))->drop->buffer == 2);
	fake_lent(f, waited, -1, "gpu1");
	FAKE_CHECK(f, fake_expect(f, FAKE_VERB(DROP))->drop->buffer == 1);
	fake_expect_end(f);
}

static void free_another(kops_buffer *b, int status, void *user)
{
	assert_int_equal(status, 0);
	kops_free(b);
	kops_free(user);
}

static void test_callbacks_may_free(void **state)
{
	struct fake *f = *state;
	struct seen seen = {0};
	kops_buffer *other = NULL;
	fake_start(f, script_freed_by_callback);
	kops *k = fake_open(f);
	kops_buffer *b = start_alloc(k, KOPS_RESIDENT, &seen);
	assert_int_equal(kops_alloc_start(k, 64, KOPS_RESIDENT, NULL, free_another, b, &other), 0);
	assert_int_equal(kops_buffer_wait(b, -1), KOPS_E_CANCELLED);
	assert_int_equal(seen.calls, 0);
	while (!links_is_empty(&k->buffers.list))
		turn(k);
	kops_close(k);
	fake_stop(f);
}

/* ---- Restarts ---- */

static void script_restart(struct fake *f)
{
	fake_greet(f);
	fake_expect(f, FAKE_VERB(ALLOC));
	fake_expect(f, FAKE_VERB(ALLOC));
	fake_expect(f, FAKE_VERB(SUBMIT));
	fake_hang_up(f);
	fake_greet(f);
	FAKE_CHECK(f, fake_lend(f) == 1); /* freed, but needed by the job */
	Kops__V1__Request *r = fake_expect(f, FAKE_VERB(ALLOC));
	FAKE_CHECK(f, r->alloc->buffer == 2 && !r->alloc->lost); /* never made, so its content cannot be lost */
	fake_lent(f, r->id, -1, "gpu1");
	fake_receipt(f, fake_expect(f, FAKE_VERB(SUBMIT))->id);
	FAKE_CHECK(f, fake_expect(f, FAKE_VERB(DROP))->drop->buffer == 1);
	fake_expect_end(f);
}

static void test_restart_in_between(void **state)
{
	struct fake *f = *state;
	struct seen freed = {0}, seen = {0};
	fake_start(f, script_restart);
	kops *k = fake_open(f);
	kops_buffer *a = start_alloc(k, KOPS_SHARED, &freed), *b = start_alloc(k, KOPS_RESIDENT, &seen);
	kops_job *job = fake_transpose(k, fake_matrix(a, 0), fake_matrix(b, 0));
	assert_int_equal(kops_submit(job, NULL, NULL), 0);
	kops_free(a);
	turn_until(k, &seen, 1);
	assert_int_equal(seen.status, 0);
	assert_int_equal(kops_wait(job, -1), 0);
	assert_int_equal(freed.calls, 0);
	kops_close(k);
	fake_stop(f);
}

static void script_dies_of_buffers(struct fake *f)
{
	for (unsigned i = 0; i < 3; i++) {
		fake_greet(f);
		fake_expect(f, FAKE_VERB(ALLOC));
		fake_expect(f, FAKE_VERB(ALLOC));
		fake_hang_up(f);
	}
	fake_greet(f);
	fake_answer(f, fake_expect(f, FAKE_VERB(PING))->id, 0, "");
	fake_expect_end(f);
}

static void test_poisonous_buffers_are_given_up(void **state)
{
	struct fake *f = *state;
	struct seen seen = {.frees = true};
	fake_start(f, script_dies_of_buffers);
	kops *k = fake_open(f);
	start_alloc(k, KOPS_SHARED, &seen);
	start_alloc(k, KOPS_SHARED, &seen);
	turn_until(k, &seen, 2);
	assert_int_equal(seen.status, KOPS_E_INTERRUPTED);
	assert_int_equal(kops_ping(k), 0);
	assert_int_equal(seen.calls, 2);
	kops_close(k);
	fake_stop(f);
}

static void script_vanish(struct fake *f)
{
	fake_greet(f);
	close(f->listener);
	f->listener = -1;
	unlink(f->path);
	fake_hang_up(f);
}

/* Starts another buffer in its place, which this failure must spare. */
static void start_again(kops_buffer *b, int status, void *user)
{
	struct seen *seen = user;
	kops_buffer *next = NULL;
	kops *k = b->k;
	seen->calls++;
	seen->status = status;
	kops_free(b);
	if (seen->calls == 1)
		assert_int_equal(kops_alloc_start(k, 64, KOPS_SHARED, NULL, start_again, seen, &next), 0);
}

static void test_daemon_gone_for_good(void **state)
{
	struct fake *f = *state;
	struct seen seen = {0};
	kops_buffer *b = NULL;
	fake_start(f, script_vanish);
	kops *k = fake_open(f);
	fake_stop(f);
	fake_set_timeout(k, 100);
	assert_int_equal(kops_alloc_start(k, 64, KOPS_SHARED, NULL, start_again, &seen, &b), 0);
	turn_until(k, &seen, 1);
	assert_int_equal(seen.status, KOPS_E_CONNECT);
	turn_until(k, &seen, 2);
	assert_int_equal(seen.status, KOPS_E_CONNECT);
	assert_true(links_is_empty(&k->buffers.list));
	kops_close(k);
}

/* ---- Opening ---- */

static void script_late_greeting(struct fake *f)
{
	fake_accept(f);
	Kops__V1__Request *r = fake_expect(f, FAKE_VERB(HELLO));
	uint64_t hello = r->id;
	FAKE_CHECK(f, fake_wait(f, 1)); /* kops_open_start() has returned */
	uint64_t alloc = fake_expect(f, FAKE_VERB(ALLOC))->id, submit = fake_expect(f, FAKE_VERB(SUBMIT))->id;
	fake_welcome(f, hello, 1);
	fake_lent(f, alloc, -1, "gpu1");
	fake_receipt(f, submit);
	fake_expect_end(f);
}

static void test_open_start(void **state)
{
	struct fake *f = *state;
	struct seen seen = {0};
	fake_start(f, script_late_greeting);
	kops *k = fake_open_start(f, FAKE_PATIENCE_MS);
	kops_buffer *b = start_alloc(k, KOPS_RESIDENT, &seen);
	kops_job *job = fake_transpose(k, fake_matrix(b, 0), fake_matrix(b, 32));
	assert_int_equal(kops_submit(job, NULL, NULL), 0);
	fake_reach(f, 1);
	turn_until(k, &seen, 1);
	assert_int_equal(kops_wait(job, -1), 0);
	kops_close(k);
	fake_stop(f);
}

static void script_refuse(struct fake *f)
{
	fake_accept(f);
	fake_answer(f, fake_expect(f, FAKE_VERB(HELLO))->id, KOPS_E_QUOTA, "too many sessions");
	fake_hang_up(f);
}

static void test_open_start_is_refused_later(void **state)
{
	struct fake *f = *state;
	struct seen seen = {0};
	fake_start(f, script_refuse);
	kops *k = fake_open_start(f, FAKE_PATIENCE_MS);
	start_alloc(k, KOPS_SHARED, &seen);
	int status;
	while ((status = turn(k)) == 0)
		;
	assert_int_equal(status, KOPS_E_QUOTA);
	assert_int_equal(seen.calls, 1);
	assert_int_equal(seen.status, KOPS_E_QUOTA);
	kops_close(k);
	fake_stop(f);
}

/* The daemon's queue takes the connection, but nobody answers. */
static void test_open_start_with_a_stuck_daemon(void **state)
{
	struct fake *f = *state;
	kops *k = fake_open_start(f, 50);
	int status;
	while ((status = turn(k)) == 0)
		;
	assert_int_equal(status, KOPS_E_CONNECT);
	assert_non_null(strstr(kops_error(k), "did not answer within 50 ms; it may hang or fail to start"));
	kops_close(k);
}

static void test_open_start_without_a_daemon(void **state)
{
	struct fake *f = *state;
	kops_options options = {.size = sizeof options, .socket = "/nonexistent/kopsd.sock"};
	char why[512];
	kops *k = NULL;
	(void)f;
	assert_int_equal(kops_open_start(&k, &options, why, sizeof why), KOPS_E_CONNECT);
	assert_null(k);
	assert_non_null(strstr(why, "/nonexistent/kopsd.sock: no such file; is kopsd running?"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fake_setup, fake_teardown)
	const struct CMUnitTest tests[] = {
	    TEST(test_alloc_start),
	    TEST(test_jobs_may_use_a_buffer_that_is_being_made),
	    TEST(test_failure),
	    TEST(test_wrong_arguments),
	    TEST(test_free_while_it_is_being_made),
	    TEST(test_callbacks_may_free),
	    TEST(test_restart_in_between),
	    TEST(test_poisonous_buffers_are_given_up),
	    TEST(test_daemon_gone_for_good),
	    TEST(test_open_start),
	    TEST(test_open_start_is_refused_later),
	    TEST(test_open_start_with_a_stuck_daemon),
	    TEST(test_open_start_without_a_daemon),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
