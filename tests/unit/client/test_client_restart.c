/* Tests libkops against a scripted daemon that goes away: repeating, giving up. */
#include "fake_daemon.h"

#include <sys/stat.h>

#include "base/clock.h"

/* ---- Replay ---- */

static void check_import(struct fake *f, uint64_t buffer, uint64_t bytes)
{
	Kops__V1__Request *r = fake_expect(f, FAKE_VERB(IMPORT));
	FAKE_CHECK(f, r->import->buffer == buffer && r->import->bytes == bytes);
	FAKE_CHECK(f, f->n_fds == 1);
	struct stat st;
	FAKE_CHECK(f, fstat(f->fds[0], &st) == 0 && (uint64_t)st.st_size >= bytes);
	fake_answer(f, r->id, 0, "");
}

static void script_restart(struct fake *f)
{
	fake_greet(f);
	for (f->count = 0; f->count < 5; f->count++)
		f->ids[f->count] = fake_lend(f);
	fake_expect(f, FAKE_VERB(SUBMIT));
	memcpy(f->saved, f->data, f->saved_len = f->len);
	fake_expect(f, FAKE_VERB(SUBMIT)); /* in place: not repeatable */
	fake_expect(f, FAKE_VERB(SUBMIT)); /* reads what that one writes */
	fake_expect(f, FAKE_VERB(SUBMIT)); /* independent */
	fake_hang_up(f);

	fake_greet(f);
	for (unsigned i = 0; i < 3; i++)
		check_import(f, f->ids[i], 64);
	Kops__V1__Request *r = fake_expect(f, FAKE_VERB(ALLOC));
	FAKE_CHECK(f, r->alloc->buffer == f->ids[3] && r->alloc->lost && strcmp(r->alloc->device, "gpu1") == 0);
	fake_lent(f, r->id, -1, "gpu1");
	r = fake_expect(f, FAKE_VERB(ALLOC));
	FAKE_CHECK(f, r->alloc->buffer == f->ids[4] && r->alloc->lost);
	fake_lent(f, r->id, -1, "gpu1");
	r = fake_expect(f, FAKE_VERB(SUBMIT));
	FAKE_CHECK(f, f->len == f->saved_len && memcmp(f->data, f->saved, f->len) == 0);
	fake_receipt(f, r->id);
	r = fake_expect(f, FAKE_VERB(SUBMIT));
	FAKE_CHECK(f, r->submit->queue == 7);
	fake_answer(f, r->id, KOPS_E_LOST, "buffer 5 was lost");
	fake_expect_end(f);
}

static void test_restart_replays(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_restart);
	kops *k = fake_open(f);
	kops_buffer *a = fake_alloc(k, 64, KOPS_SHARED), *b = fake_alloc(k, 64, KOPS_SHARED);
	kops_buffer *c = fake_alloc(k, 64, KOPS_SHARED), *r = fake_alloc(k, 64, KOPS_RESIDENT);
	kops_buffer *s = fake_alloc(k, 64, KOPS_RESIDENT);
	kops_job_options options = {.size = sizeof options, .queue = 7};
	kops_job *plain = fake_gemm(k, a, b, r, 0), *in_place = fake_gemm(k, a, b, c, 1);
	kops_job *dependent = fake_gemm(k, a, c, r, 0), *independent;
	assert_int_equal(kops_job_new(k, &options, &independent), 0);
	assert_int_equal(kops_job_copy(independent, fake_matrix(s, 0), fake_matrix(b, 32), NULL), 0);

	memcpy(kops_data(a), "kept", 4);
	assert_int_equal(kops_submit(plain, NULL, NULL), 0);
	assert_int_equal(kops_submit(in_place, NULL, NULL), 0);
	assert_int_equal(kops_submit(dependent, NULL, NULL), 0);
	assert_int_equal(kops_submit(independent, NULL, NULL), 0);
	assert_int_equal(kops_wait(in_place, -1), KOPS_E_INTERRUPTED);
	assert_non_null(strstr(kops_error(k), "not sent again"));
	assert_string_equal(kops_job_error(in_place), kops_error(k));
	assert_int_equal(kops_wait(dependent, -1), KOPS_E_INTERRUPTED);
	assert_int_equal(kops_wait(plain, -1), 0);
	assert_int_equal(kops_wait(independent, -1), KOPS_E_LOST);
	assert_memory_equal(kops_data(a), "kept", 4);
	kops_close(k);
	fake_stop(f);
}

static void script_answered_then_gone(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	Kops__V1__Request *r = fake_expect(f, FAKE_VERB(SUBMIT));
	uint64_t first = r->id;
	r = fake_expect(f, FAKE_VERB(SUBMIT));
	fake_receipt(f, r->id);
	fake_receipt(f, first);
	/* An unread request turns the end of the connection into ECONNRESET for the client. */
	struct pollfd p = {.fd = f->sock, .events = POLLIN};
	FAKE_CHECK(f, poll(&p, 1, FAKE_PATIENCE_MS) == 1);
	fake_hang_up(f);
	fake_greet(f);
	fake_answer(f, fake_expect(f, FAKE_VERB(IMPORT))->id, 0, "");
	fake_receipt(f, fake_expect(f, FAKE_VERB(SUBMIT))->id);
	fake_expect_end(f);
}

/* Answers on their way when the daemon went count: those jobs are done, even unrepeatable ones. */
static void test_answers_before_the_end_count(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_answered_then_gone);
	kops *k = fake_open(f);
	kops_buffer *a = fake_alloc(k, 64, KOPS_SHARED);
	kops_job *one = fake_gemm(k, a, a, a, 1), *two = fake_gemm(k, a, a, a, 1);
	kops_view v = fake_matrix(a, 0), w = fake_matrix(a, 32);
	kops_job *three = fake_transpose(k, v, w);
	assert_int_equal(kops_submit(one, NULL, NULL), 0);
	assert_int_equal(kops_submit(two, NULL, NULL), 0);
	usleep(20000);
	assert_int_equal(kops_submit(three, NULL, NULL), 0);
	usleep(50000);
	assert_int_equal(kops_wait(one, -1), 0);
	assert_int_equal(kops_wait(two, -1), 0);
	assert_int_equal(kops_wait(three, -1), 0);
	kops_close(k);
	fake_stop(f);
}

static void script_gone_before_the_cancel_is_answered(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	uint64_t id = fake_expect(f, FAKE_VERB(SUBMIT))->id;
	FAKE_CHECK(f, fake_expect(f, FAKE_VERB(CANCEL))->cancel->job == id);
	fake_hang_up(f);
	fake_greet(f);
	check_import(f, 1, 64);
	fake_answer(f, fake_expect(f, FAKE_VERB(PING))->id, 0, ""); /* no Submit before it */
	fake_expect_end(f);
}

/* The job may have run or not, and its user wants neither again. */
static void test_a_cancelled_job_is_not_sent_again(void **state)
{
	struct fake *f = *state;
	kops_job *job = fake_start_job(f, script_gone_before_the_cancel_is_answered, NULL);
	kops *k = job->k;
	assert_int_equal(kops_submit(job, NULL, NULL), 0);
	assert_int_equal(kops_cancel(job), 0);
	assert_int_equal(kops_wait(job, -1), KOPS_E_INTERRUPTED);
	assert_string_equal(kops_job_error(job),
	                    "kopsd restarted after this job was cancelled; it may have run");
	assert_int_equal(kops_ping(k), 0);
	kops_close(k);
	fake_stop(f);
}

static void script_drain(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	uint64_t running = fake_expect(f, FAKE_VERB(SUBMIT))->id;
	fake_answer(f, fake_expect(f, FAKE_VERB(SUBMIT))->id, KOPS_E_SHUTDOWN, "stopping");
	fake_reach(f, 1);
	FAKE_CHECK(f, fake_wait(f, 2));
	fake_receipt(f, running);
	fake_expect_end(f); /* the client has nothing more to expect here */
	fake_greet(f);
	fake_answer(f, fake_expect(f, FAKE_VERB(IMPORT))->id, 0, "");
	fake_receipt(f, fake_expect(f, FAKE_VERB(SUBMIT))->id);
	fake_receipt(f, fake_expect(f, FAKE_VERB(SUBMIT))->id);
	fake_expect_end(f);
}

/* A job refused because the daemon stops did not run: it goes to the next daemon, repeatable or not. */
static void test_draining_daemon(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_drain);
	kops *k = fake_open(f);
	kops_buffer *a = fake_alloc(k, 64, KOPS_SHARED);
	kops_job *running = fake_gemm(k, a, a, a, 1), *refused = fake_gemm(k, a, a, a, 1);
	kops_job *held = fake_gemm(k, a, a, a, 1);
	assert_int_equal(kops_submit(running, NULL, NULL), 0);
	assert_int_equal(kops_submit(refused, NULL, NULL), 0);
	assert_true(fake_wait(f, 1));
	assert_int_equal(kops_wait(refused, 0), KOPS_E_TIMEOUT);
	assert_int_equal(kops_submit(held, NULL, NULL), 0); /* not sent to a daemon that stops */
	fake_reach(f, 2);
	assert_int_equal(kops_wait(running, -1), 0);
	assert_int_equal(kops_wait(refused, -1), 0);
	assert_int_equal(kops_wait(held, -1), 0);
	kops_close(k);
	fake_stop(f);
}

static void script_freed_in_use(struct fake *f)
{
	fake_greet(f);
	uint64_t a = fake_lend(f), b = fake_lend(f);
	fake_expect(f, FAKE_VERB(SUBMIT));
	FAKE_CHECK(f, fake_expect(f, FAKE_VERB(DROP))->drop->buffer == a);
	FAKE_CHECK(f, fake_expect(f, FAKE_VERB(DROP))->drop->buffer == b);
	fake_hang_up(f);
	fake_greet(f);
	check_import(f, a, 64); /* no job uses b, so it is gone */
	Kops__V1__Request *r = fake_expect(f, FAKE_VERB(SUBMIT));
	uint64_t id = r->id;
	FAKE_CHECK(f, fake_expect(f, FAKE_VERB(DROP))->drop->buffer == a);
	fake_receipt(f, id);
	fake_expect_end(f);
}

static void test_freed_buffers_of_running_jobs_are_given_again(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_freed_in_use);
	kops *k = fake_open(f);
	kops_buffer *a = fake_alloc(k, 64, KOPS_SHARED), *b = fake_alloc(k, 64, KOPS_SHARED);
	kops_view v = fake_matrix(a, 0), w = fake_matrix(a, 32);
	kops_job *job = fake_transpose(k, v, w);
	assert_int_equal(kops_submit(job, NULL, NULL), 0);
	kops_free(a);
	kops_free(b);
	kops_free(NULL);
	assert_int_equal(kops_wait(job, -1), 0);
	assert_int_equal(kops_submit(job, NULL, NULL), KOPS_E_INVALID);
	assert_string_equal(kops_error(k), "op 0 uses a freed buffer");
	kops_close(k);
	fake_stop(f);
}

static void script_not_taken_back(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	fake_expect(f, FAKE_VERB(SUBMIT));
	fake_hang_up(f);
	fake_greet(f);
	fake_answer(f, fake_expect(f, FAKE_VERB(IMPORT))->id, KOPS_E_QUOTA, "over 1 GiB of user 7");
	fake_answer(f, fake_expect(f, FAKE_VERB(SUBMIT))->id, KOPS_E_NOT_FOUND, "no buffer 1");
	fake_expect_end(f);
}

static void test_buffer_not_taken_back_is_the_cause(void **state)
{
	struct fake *f = *state;
	kops_job *job = fake_start_job(f, script_not_taken_back, NULL);
	kops *k = job->k;
	assert_int_equal(kops_run(job), KOPS_E_QUOTA);
	assert_string_equal(kops_error(k), "kopsd restarted and refused a buffer: over 1 GiB of user 7");
	kops_close(k);
	fake_stop(f);
}

static void script_dies_of_it(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	for (f->count = 0;; f->count++) {
		Kops__V1__Request *r = fake_read(f);
		if (!r)
			break;
		if (r->body_case == FAKE_VERB(IMPORT))
			r = fake_expect(f, FAKE_VERB(SUBMIT));
		FAKE_CHECK(f, r->body_case == FAKE_VERB(SUBMIT));
		fake_hang_up(f);
		if (f->count == 2)
			break;
		fake_greet(f);
	}
}

/* A job that kills the daemon each time is finally given up. */
static void test_poisonous_job_is_given_up(void **state)
{
	struct fake *f = *state;
	kops_job *job = fake_start_job(f, script_dies_of_it, NULL);
	kops *k = job->k;
	assert_int_equal(kops_run(job), KOPS_E_INTERRUPTED);
	assert_string_equal(
	    kops_error(k),
	    "kopsd crashed three times while this job was running, so it is not sent again; see kopsd's log "
	    "(journalctl -u kopsd)");
	kops_close(k);
	fake_stop(f);
	assert_int_equal(f->count, 2);
}

/* Accepts one connection with the job after its buffers; then the daemon dies. */
static void die_of_it(struct fake *f)
{
	fake_greet(f);
	fake_answer(f, fake_expect(f, FAKE_VERB(IMPORT))->id, 0, "");
	fake_expect(f, FAKE_VERB(SUBMIT));
	fake_hang_up(f);
}

static void script_stops_between_deaths(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	fake_expect(f, FAKE_VERB(SUBMIT));
	fake_hang_up(f);
	die_of_it(f);
	fake_greet(f);
	fake_answer(f, fake_expect(f, FAKE_VERB(IMPORT))->id, 0, "");
	fake_answer(f, fake_expect(f, FAKE_VERB(SUBMIT))->id, KOPS_E_SHUTDOWN, "stopping");
	fake_expect_end(f);
	die_of_it(f);
	die_of_it(f);
	fake_greet(f);
	fake_answer(f, fake_expect(f, FAKE_VERB(IMPORT))->id, 0, "");
	fake_receipt(f, fake_expect(f, FAKE_VERB(SUBMIT))->id);
	fake_expect_end(f);
}

/* A daemon that stops had the job and lived, so earlier deaths do not count. */
static void test_an_orderly_stop_ends_a_row_of_deaths(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_stops_between_deaths);
	kops *k = fake_open(f);
	kops_buffer *a = fake_alloc(k, 64, KOPS_SHARED);
	assert_int_equal(kops_run(fake_transpose(k, fake_matrix(a, 0), fake_matrix(a, 32))), 0);
	kops_close(k);
	fake_stop(f);
}

/* Reads two jobs, and returns their ids. */
static void take_two(struct fake *f, uint64_t ids[2])
{
	ids[0] = fake_expect(f, FAKE_VERB(SUBMIT))->id;
	ids[1] = fake_expect(f, FAKE_VERB(SUBMIT))->id;
}

static void script_cuts_off_while_stopping(struct fake *f)
{
	uint64_t ids[2];
	fake_greet(f);
	fake_lend(f);
	for (unsigned i = 0; i < 4; i++) {
		take_two(f, ids);
		if (i == 2)
			fake_answer(f, ids[1], KOPS_E_SHUTDOWN, "stopping");
		if (i < 3) {
			fake_hang_up(f);
			fake_greet(f);
			fake_answer(f, fake_expect(f, FAKE_VERB(IMPORT))->id, 0, "");
		}
	}
	fake_receipt(f, ids[0]);
	fake_receipt(f, ids[1]);
	fake_expect_end(f);
}

/* A job that still runs when a stopping daemon's time is over did not kill it. */
static void test_a_job_cut_off_by_a_stop_is_sent_again(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_cuts_off_while_stopping);
	kops *k = fake_open(f);
	kops_buffer *a = fake_alloc(k, 64, KOPS_SHARED);
	kops_job *running = fake_transpose(k, fake_matrix(a, 0), fake_matrix(a, 16));
	kops_job *waiting = fake_transpose(k, fake_matrix(a, 32), fake_matrix(a, 48));
	assert_int_equal(kops_submit(running, NULL, NULL), 0);
	assert_int_equal(kops_submit(waiting, NULL, NULL), 0);
	assert_int_equal(kops_wait(running, 20000), 0);
	assert_int_equal(kops_wait(waiting, 20000), 0);
	kops_close(k);
	fake_stop(f);
}

static void script_refuses_connections(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	fake_hang_up(f);
	for (unsigned i = 0; i < 6; i++) {
		fake_accept(f);
		fake_answer(f, fake_expect(f, FAKE_VERB(HELLO))->id, i % 2 ? KOPS_E_BUSY : KOPS_E_SHUTDOWN,
		            "not now");
		fake_hang_up(f);
	}
	fake_greet(f);
	fake_answer(f, fake_expect(f, FAKE_VERB(IMPORT))->id, 0, "");
	fake_receipt(f, fake_expect(f, FAKE_VERB(SUBMIT))->id);
	fake_receipt(f, fake_expect(f, FAKE_VERB(SUBMIT))->id);
	fake_expect_end(f);
}

/* Jobs go out with Hello. If that is refused they did not run, repeatable or not. */
static void test_refused_connections_are_no_deaths(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_refuses_connections);
	kops *k = fake_open(f);
	kops_buffer *a = fake_alloc(k, 64, KOPS_SHARED);
	kops_job *plain = fake_transpose(k, fake_matrix(a, 32), fake_matrix(a, 48));
	kops_job *in_place = fake_gemm(k, a, a, a, 1);
	while (kops_fd(k) >= 0) /* until the end is seen */
		assert_true(kops_process(k) >= 0);
	assert_int_equal(kops_submit(plain, NULL, NULL), 0);
	assert_int_equal(kops_submit(in_place, NULL, NULL), 0);
	assert_int_equal(kops_wait(plain, 20000), 0);
	assert_int_equal(kops_wait(in_place, 20000), 0);
	kops_close(k);
	fake_stop(f);
}

static void script_dies_before_welcome(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	fake_expect(f, FAKE_VERB(SUBMIT));
	fake_hang_up(f);
	for (unsigned i = 0; i < 5; i++) {
		fake_accept(f);
		fake_expect(f, FAKE_VERB(HELLO));
		fake_hang_up(f);
	}
	die_of_it(f);
	fake_greet(f);
	fake_answer(f, fake_expect(f, FAKE_VERB(IMPORT))->id, 0, "");
	fake_receipt(f, fake_expect(f, FAKE_VERB(SUBMIT))->id);
	fake_expect_end(f);
}

/* Requests are read in order: a daemon that has not answered Hello has not seen the job. */
static void test_a_daemon_that_ends_before_welcome_did_not_die_of_the_job(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_dies_before_welcome);
	kops *k = fake_open(f);
	kops_buffer *a = fake_alloc(k, 64, KOPS_SHARED);
	assert_int_equal(kops_run(fake_transpose(k, fake_matrix(a, 0), fake_matrix(a, 32))), 0);
	kops_close(k);
	fake_stop(f);
}

static void die_of_buffer(struct fake *f, Kops__V1__Request__BodyCase verb)
{
	fake_greet(f);
	fake_expect(f, verb);
	fake_hang_up(f);
}

static void script_dies_of_buffers(struct fake *f)
{
	for (unsigned i = 0; i < 3; i++)
		die_of_buffer(f, FAKE_VERB(ALLOC));
	for (unsigned i = 0; i < 3; i++)
		die_of_buffer(f, FAKE_VERB(IMPORT));
	for (unsigned i = 0; i < 2; i++)
		die_of_buffer(f, FAKE_VERB(ALLOC));
	fake_greet(f);
	fake_answer(f, fake_expect(f, FAKE_VERB(ALLOC))->id, KOPS_E_SHUTDOWN, "stopping");
	fake_expect_end(f);
	for (unsigned i = 0; i < 2; i++)
		die_of_buffer(f, FAKE_VERB(ALLOC));
	fake_greet(f);
	fake_lend(f);
	fake_answer(f, fake_expect(f, FAKE_VERB(PING))->id, 0, "");
	fake_expect_end(f);
}

static void test_poisonous_buffers_are_given_up(void **state)
{
	struct fake *f = *state;
	kops_buffer *b = NULL;
	int memfd = fake_memfd(64);
	fake_start(f, script_dies_of_buffers);
	kops *k = fake_open(f);
	assert_int_equal(kops_alloc(k, 64, KOPS_SHARED, NULL, &b), KOPS_E_INTERRUPTED);
	assert_string_equal(kops_error(k), "kopsd crashed three times while this request was unanswered, so "
	                                   "it is not sent again; see kopsd's log "
	                                   "(journalctl -u kopsd)");
	assert_int_equal(kops_import(k, memfd, 64, 0, &b), KOPS_E_INTERRUPTED);
	assert_null(b);
	assert_int_equal(kops_alloc(k, 64, KOPS_SHARED, NULL, &b), 0); /* two deaths, a stop, two deaths */
	assert_int_equal(kops_ping(k), 0);
	kops_close(k);
	close(memfd);
	fake_stop(f);
}

/* ---- Giving up ---- */

static void script_vanish(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	fake_expect(f, FAKE_VERB(SUBMIT));
	fake_expect(f, FAKE_VERB(SUBMIT));
	close(f->listener);
	f->listener = -1;
	unlink(f->path);
	fake_hang_up(f);
}

static void script_back(struct fake *f)
{
	fake_greet(f);
	fake_answer(f, fake_expect(f, FAKE_VERB(IMPORT))->id, 0, "");
	fake_answer(f, fake_expect(f, FAKE_VERB(PING))->id, 0, "");
	fake_receipt(f, fake_expect(f, FAKE_VERB(SUBMIT))->id);
	fake_expect_end(f);
}

static void test_daemon_gone_for_good_and_back(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_vanish);
	kops *k = fake_open(f);
	kops_buffer *a = fake_alloc(k, 64, KOPS_SHARED), *none = NULL;
	kops_job *in_place = fake_gemm(k, a, a, a, 0);
	kops_job *job = fake_transpose(k, fake_matrix(a, 0), fake_matrix(a, 32));
	fake_set_timeout(k, 150);
	/* It is in another queue than in_place, over other bytes. */
	assert_int_equal(kops_submit(job, NULL, NULL), 0);
	assert_int_equal(kops_submit(in_place, NULL, NULL), 0);
	assert_int_equal(kops_wait(in_place, -1), KOPS_E_INTERRUPTED);
	uint64_t start = clock_ns();
	assert_int_equal(kops_wait(job, -1), KOPS_E_INTERRUPTED); /* its input is what in_place writes */
	assert_int_equal(kops_submit(job, NULL, NULL), 0);
	assert_int_equal(kops_wait(job, -1), KOPS_E_CONNECT);
	double took_us = clock_us(start, clock_ns());
	assert_true(took_us > 100e3);
	char before[128];
	unsigned attempts = 0;
	snprintf(before, sizeof before, "cannot reach kopsd at %s: tried ", f->path);
	assert_memory_equal(kops_error(k), before, strlen(before));
	assert_int_equal(sscanf(kops_error(k) + strlen(before), "%u", &attempts), 1);
	assert_in_range(attempts, 1, 30); /* 5 on an idle machine */
	assert_non_null(strstr(kops_error(k),
	                       " times in 0.15 s, the last time: no such file; is kopsd running? "
	                       "(systemctl status kopsd.socket)"));
	assert_int_equal(kops_fd(k), -1);
	assert_int_equal(kops_events(k), 0);
	assert_int_equal(kops_timeout(k), -1);
	assert_int_equal(kops_process(k), 0);
	assert_int_equal(kops_alloc(k, 64, KOPS_SHARED, NULL, &none), KOPS_E_CONNECT);
	assert_null(none);
	assert_int_equal(kops_wait(job, -1), KOPS_E_CONNECT); /* still says so */
	fake_stop(f);

	fake_set_timeout(k, FAKE_PATIENCE_MS);
	fake_listen(f);
	fake_start(f, script_back);
	assert_int_equal(kops_ping(k), 0);
	assert_int_equal(kops_run(job), 0);
	kops_close(k);
	fake_stop(f);
}

static void count_end(kops_job *job, int status, void *user)
{
	(void)job;
	int *seen = user;
	*seen = *seen * 100 - status;
}

static int run_loop(kops *k, int max_ms)
{
	struct pollfd p = {.fd = kops_fd(k), .events = kops_events(k)};
	int timeout = kops_timeout(k);
	poll(&p, p.fd >= 0, timeout < 0 || timeout > max_ms ? max_ms : timeout);
	return kops_process(k);
}

static void script_event_loop(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	fake_receipt(f, fake_expect(f, FAKE_VERB(SUBMIT))->id);
	fake_expect(f, FAKE_VERB(SUBMIT));
	fake_expect(f, FAKE_VERB(SUBMIT));
	fake_hang_up(f);
	fake_greet(f);
	fake_answer(f, fake_expect(f, FAKE_VERB(IMPORT))->id, 0, "");
	fake_receipt(f, fake_expect(f, FAKE_VERB(SUBMIT))->id);
	fake_expect(f, FAKE_VERB(SUBMIT));
	close(f->listener);
	f->listener = -1;
	fake_hang_up(f);
}

/* Runs a whole life in an event loop: results, a restart, the end. */
static void test_event_loop(void **state)
{
	struct fake *f = *state;
	int seen = 0, status = 0;
	fake_start(f, script_event_loop);
	kops *k = fake_open(f);
	kops_buffer *a = fake_alloc(k, 64, KOPS_SHARED);
	kops_job *in_place = fake_gemm(k, a, a, a, 0);
	kops_job *job = fake_transpose(k, fake_matrix(a, 16), fake_matrix(a, 32));
	assert_int_equal(kops_submit(job, count_end, &seen), 0);
	while ((status = run_loop(k, 1000)) == 0)
		;
	assert_int_equal(status, 1);
	assert_int_equal(seen, 0);
	assert_false(kops_job_is_out(job));

	assert_int_equal(kops_submit(job, count_end, &seen), 0);
	assert_int_equal(kops_submit(in_place, count_end, &seen), 0);
	int ended = 0;
	while (ended < 2) {
		status = run_loop(k, 1000);
		assert_true(status >= 0);
		ended += status;
	}
	assert_int_equal(seen, -KOPS_E_INTERRUPTED * 100);

	seen = 0;
	fake_set_timeout(k, 100);
	assert_int_equal(kops_submit(job, count_end, &seen), 0);
	while ((status = run_loop(k, 1000)) == 0)
		;
	assert_int_equal(status, KOPS_E_CONNECT);
	assert_int_equal(seen, -KOPS_E_CONNECT);
	assert_int_equal(kops_process(k), 0);
	kops_close(k);
	fake_stop(f);
}

static void script_restart_once(struct fake *f)
{
	fake_greet(f);
	fake_expect(f, FAKE_VERB(PING));
	fake_hang_up(f);
	fake_greet(f);
	fake_answer(f, fake_expect(f, FAKE_VERB(PING))->id, 0, "");
	fake_expect_end(f);
}

/* An epoll set forgets a closed descriptor, so the new one must have another number. */
static void test_new_connection_has_a_new_number(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_restart_once);
	kops *k = fake_open(f);
	int fd = kops_fd(k);
	assert_int_equal(kops_ping(k), 0);
	assert_true(kops_fd(k) >= 0);
	assert_int_not_equal(kops_fd(k), fd);
	kops_close(k);
	fake_stop(f);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fake_setup, fake_teardown)
	const struct CMUnitTest tests[] = {
	    TEST(test_restart_replays),
	    TEST(test_answers_before_the_end_count),
	    TEST(test_a_cancelled_job_is_not_sent_again),
	    TEST(test_draining_daemon),
	    TEST(test_freed_buffers_of_running_jobs_are_given_again),
	    TEST(test_buffer_not_taken_back_is_the_cause),
	    TEST(test_poisonous_job_is_given_up),
	    TEST(test_an_orderly_stop_ends_a_row_of_deaths),
	    TEST(test_a_job_cut_off_by_a_stop_is_sent_again),
	    TEST(test_refused_connections_are_no_deaths),
	    TEST(test_a_daemon_that_ends_before_welcome_did_not_die_of_the_job),
	    TEST(test_poisonous_buffers_are_given_up),
	    TEST(test_daemon_gone_for_good_and_back),
	    TEST(test_event_loop),
	    TEST(test_new_connection_has_a_new_number),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
