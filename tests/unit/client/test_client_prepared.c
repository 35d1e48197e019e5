/* Tests libkops against a scripted daemon: repeated jobs are prepared, and run by their number. */
#include "fake_daemon.h"

static Kops__V1__Request *expect_submit(struct fake *f, uint64_t prepare, bool only)
{
	Kops__V1__Request *r = fake_expect(f, FAKE_VERB(SUBMIT));
	FAKE_CHECK(f,
	           r->submit->prepare == prepare && r->submit->only_prepare == only && r->submit->n_ops == 1);
	return r;
}

static Kops__V1__Request *expect_run(struct fake *f, uint64_t prepared)
{
	Kops__V1__Request *r = fake_expect(f, FAKE_VERB(RUN));
	FAKE_CHECK(f, r->run->prepared == prepared && r->run->deadline_us == 0);
	return r;
}

static void greet(struct fake *f)
{
	f->prepares = true;
	fake_greet(f);
}

static void check_receipt(const kops_job *job, double us)
{
	const kops_receipt *receipt = kops_job_receipt(job);
	assert_non_null(receipt);
	assert_string_equal(receipt->device, "cpu");
	assert_int_equal(receipt->n_ops, 1);
	fake_check_times(receipt, us);
	assert_string_equal(kops_receipt_op(receipt, 0)->kernel, "fake");
	assert_string_equal(kops_receipt_op(receipt, 0)->why, "it is the only one");
	assert_true(kops_receipt_op(receipt, 0)->compute_us == us);
}

static void script_again(struct fake *f)
{
	greet(f);
	fake_lend(f);
	fake_receipt(f, expect_submit(f, 0, false)->id);
	fake_receipt_prepared(f, expect_submit(f, 1, false)->id, false, 2);
	fake_receipt_prepared(f, expect_run(f, 1)->id, true, 3);
	fake_answer(f, expect_run(f, 1)->id, KOPS_E_BUSY, "full"); /* the job stays prepared */
	fake_receipt_prepared(f, expect_run(f, 1)->id, true, 4);
	fake_answer(f, expect_run(f, 1)->id, KOPS_E_NOT_FOUND, "no job is prepared as 1");
	FAKE_CHECK(f, fake_expect(f, FAKE_VERB(FORGET))->forget->prepared == 1);
	fake_expect_end(f);
}

static void test_what_is_submitted_again_is_prepared(void **state)
{
	struct fake *f = *state;
	kops_job *job = fake_start_job(f, script_again, NULL);
	kops *k = job->k;
	assert_int_equal(kops_run(job), 0);
	assert_int_equal(kops_run(job), 0);
	check_receipt(job, 2);
	assert_int_equal(kops_run(job), 0);
	check_receipt(job, 3);
	assert_int_equal(kops_run(job), KOPS_E_BUSY);
	assert_null(kops_job_receipt(job));
	assert_int_equal(kops_run(job), 0);
	check_receipt(job, 4);
	assert_int_equal(kops_run(job), KOPS_E_NOT_FOUND);
	kops_job_free(job);
	kops_close(k);
	fake_stop(f);
}

/* Answers the OpenRing with f->memfd. */
static struct ring_memory *open_ring(struct fake *f)
{
	Kops__V1__Ring ring = KOPS__V1__RING__INIT;
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	struct ring_memory *memory;

	reply.id = fake_expect(f, FAKE_VERB(OPEN_RING))->id;
	ring.entries = f->ring_entries;
	ring.bytes = ring_bytes(ring.entries);
	int fd = fake_memfd(ring.bytes);
	memory = mmap(NULL, ring.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	FAKE_CHECK(f, memory != MAP_FAILED);
	ring_store(&memory->daemon_sleeps, 1);
	reply.body_case = KOPS__V1__REPLY__BODY_RING;
	reply.ring = &ring;
	fake_send(f, &reply, fd);
	close(fd);
	return memory;
}

static void script_ring(struct fake *f)
{
	Kops__V1__Woken woken = KOPS__V1__WOKEN__INIT;
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;

	f->ring_entries = 2;
	greet(f);
	fake_lend(f);
	fake_receipt(f, expect_submit(f, 0, false)->id);
	fake_receipt_prepared(f, expect_submit(f, 1, false)->id, false, 2);
	struct ring_memory *memory = open_ring(f);
	fake_answer(f, fake_expect(f, FAKE_VERB(PING))->id, 0, "");
	fake_expect(f, FAKE_VERB(WAKE));
	FAKE_CHECK(f, ring_load(&memory->run_tail) == 1 && ring_runs(memory)->prepared == 1);
	struct ring_end *end = ring_ends(memory, f->ring_entries);
	*end = (struct ring_end){.id = ring_runs(memory)->id, .flags = RING_PREPARED};
	FAKE_TIMES(end, 3);
	ring_publish(&memory->end_tail, 1, &memory->client_sleeps);
	reply.body_case = KOPS__V1__REPLY__BODY_WOKEN;
	reply.woken = &woken;
	fake_send(f, &reply, -1);
	munmap(memory, ring_bytes(f->ring_entries));
	fake_expect_end(f);
}

static void test_what_ends_in_the_ring_has_a_receipt(void **state)
{
	struct fake *f = *state;
	kops_job *job = fake_start_job(f, script_ring, NULL);
	kops *k = job->k;
	assert_int_equal(kops_run(job), 0);
	assert_int_equal(kops_run(job), 0);
	assert_int_equal(kops_ping(k), 0); /* the ring is there */
	assert_int_equal(kops_run(job), 0);
	fake_check_times(kops_job_receipt(job), 3);
	assert_string_equal(kops_receipt_op(kops_job_receipt(job), 0)->kernel, "fake");
	kops_close(k);
	fake_stop(f);
}

static void script_no_room(struct fake *f)
{
	greet(f);
	fake_lend(f);
	fake_receipt(f, expect_submit(f, 0, false)->id);
	fake_receipt(f, expect_submit(f, 1, false)->id);
	fake_receipt(f, expect_submit(f, 1, false)->id);
	fake_expect_end(f);
}

static void test_without_room_it_is_sent_whole(void **state)
{
	struct fake *f = *state;
	kops_job *job = fake_start_job(f, script_no_room, NULL);
	kops *k = job->k;
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(kops_run(job), 0);
	kops_close(k);
	fake_stop(f);
}

static void script_old(struct fake *f)
{
	fake_greet(f); /* to this daemon the new fields would be a violation */
	fake_lend(f);
	for (unsigned i = 0; i < 3; i++)
		fake_receipt(f, expect_submit(f, 0, false)->id);
	fake_expect_end(f);
}

static void test_an_older_daemon_is_not_asked(void **state)
{
	struct fake *f = *state;
	kops_job *job = fake_start_job(f, script_old, NULL);
	kops *k = job->k;
	assert_int_equal(kops_job_prepare(job), 0);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(kops_run(job), 0);
	kops_close(k);
	fake_stop(f);
}

static void script_restart(struct fake *f)
{
	greet(f);
	fake_lend(f);
	fake_receipt(f, expect_submit(f, 0, false)->id);
	fake_receipt_prepared(f, expect_submit(f, 1, false)->id, false, 1);
	expect_run(f, 1);
	fake_hang_up(f); /* it dies with the run out */
	fake_accept(f);
	uint64_t hello = fake_expect(f, FAKE_VERB(HELLO))->id;
	fake_expect(f, FAKE_VERB(IMPORT));
	uint64_t id = expect_submit(f, 0, false)->id; /* sent before the Welcome, so support is unknown */
	fake_welcome(f, hello, 1);
	fake_receipt(f, id);
	fake_receipt_prepared(f, expect_submit(f, 1, false)->id, false, 2);
	fake_receipt_prepared(f, expect_run(f, 1)->id, true, 3);
	fake_expect_end(f);
}

static void test_after_a_restart_it_is_prepared_anew(void **state)
{
	struct fake *f = *state;
	kops_job *job = fake_start_job(f, script_restart, NULL);
	kops *k = job->k;
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(kops_run(job), 0);
	check_receipt(job, 3);
	kops_close(k);
	fake_stop(f);
}

static void script_ahead(struct fake *f)
{
	greet(f);
	fake_lend(f);
	fake_receipt_prepared(f, expect_submit(f, 1, true)->id, false, 0);
	fake_receipt_prepared(f, expect_run(f, 1)->id, true, 3);
	fake_answer(f, expect_submit(f, 2, true)->id, KOPS_E_SHAPE, "2 × 2 into 3 × 3");
	fake_answer(f, expect_submit(f, 2, false)->id, KOPS_E_SHAPE, "2 × 2 into 3 × 3");
	FAKE_CHECK(f, fake_expect(f, FAKE_VERB(FORGET))->forget->prepared == 1);
	fake_expect_end(f);
}

static void test_a_job_may_be_prepared_before_its_first_run(void **state)
{
	struct fake *f = *state;
	kops_buffer *b;
	kops_job *job = fake_start_job(f, script_ahead, &b);
	kops *k = job->k;
	assert_int_equal(kops_job_prepare(job), 0);
	assert_string_equal(kops_receipt_op(kops_job_receipt(job), 0)->kernel, "fake");
	assert_int_equal(kops_job_prepare(job), 0); /* already prepared */
	assert_int_equal(kops_job_transpose(job, fake_matrix(b, 0), fake_matrix(b, 16), NULL), KOPS_E_STATE);
	assert_int_equal(kops_run(job), 0);
	check_receipt(job, 3);
	kops_job *wrong = fake_transpose(k, fake_matrix(b, 0), fake_matrix(b, 16));
	assert_int_equal(kops_job_prepare(wrong), KOPS_E_SHAPE);
	assert_string_equal(kops_error(k), "2 × 2 into 3 × 3");
	assert_int_equal(kops_run(wrong), KOPS_E_SHAPE);
	kops_job_free(wrong);
	kops_job_free(job);
	kops_close(k);
	fake_stop(f);
}

static void script_after_a_refusal(struct fake *f)
{
	greet(f);
	fake_lend(f);
	fake_receipt(f, expect_submit(f, 0, false)->id);
	fake_receipt_prepared(f, expect_submit(f, 1, false)->id, false, 2);
	uint64_t late = expect_submit(f, 2, true)->id;
	uint64_t cancel = fake_expect(f, FAKE_VERB(CANCEL))->id;
	fake_answer(f, late, KOPS_E_QUOTA, "the limit of memory for prepared jobs is reached");
	fake_answer(f, cancel, KOPS_E_NOT_FOUND, "it has ended");
	fake_receipt(f, expect_submit(f, 2, false)->id);
	fake_expect_end(f);
}

/* If it is already out, or prepared too late, the next run is an ordinary one. */
static void test_a_job_that_could_not_be_prepared_runs(void **state)
{
	struct fake *f = *state;
	kops_buffer *b;
	kops_job *job = fake_start_job(f, script_after_a_refusal, &b);
	kops *k = job->k;
	assert_int_equal(kops_submit(job, NULL, NULL), 0);
	assert_int_equal(kops_job_prepare(job), KOPS_E_STATE);
	assert_int_equal(kops_wait(job, -1), 0);
	assert_int_equal(kops_run(job), 0);
	kops_job *slow = fake_transpose(k, fake_matrix(b, 0), fake_matrix(b, 16));
	fake_set_timeout(k, 50);
	assert_int_equal(kops_job_prepare(slow), KOPS_E_TIMEOUT);
	assert_int_equal(kops_wait(slow, -1), KOPS_E_QUOTA);
	fake_set_timeout(k, FAKE_PATIENCE_MS);
	assert_int_equal(kops_run(slow), 0);
	kops_close(k);
	fake_stop(f);
}

static void script_restart_while_preparing(struct fake *f)
{
	greet(f);
	fake_lend(f);
	expect_submit(f, 1, true);
	fake_hang_up(f);
	greet(f);
	fake_expect(f, FAKE_VERB(IMPORT));
	fake_answer(f, fake_expect(f, FAKE_VERB(PING))->id, 0, "");
	fake_receipt(f, expect_submit(f, 1, false)->id);
	fake_expect_end(f);
}

/* A daemon that does not know the field would run the job. */
static void test_a_restart_does_not_prepare_it_again(void **state)
{
	struct fake *f = *state;
	kops_job *job = fake_start_job(f, script_restart_while_preparing, NULL);
	kops *k = job->k;
	assert_int_equal(kops_job_prepare(job), KOPS_E_INTERRUPTED);
	assert_non_null(strstr(kops_error(k), "prepare it again"));
	assert_int_equal(kops_ping(k), 0);
	assert_int_equal(kops_run(job), 0);
	kops_close(k);
	fake_stop(f);
}

/* Makes nine calls, of which eight are remembered. */
static void script_one_op(struct fake *f)
{
	greet(f);
	fake_lend(f);
	for (unsigned i = 0; i < 2; i++)
		fake_receipt(f, expect_submit(f, 0, false)->id);
	fake_receipt_prepared(f, expect_submit(f, 1, false)->id, false, 2); /* the first call again */
	for (unsigned i = 0; i < 2; i++)
		fake_receipt_prepared(f, expect_run(f, 1)->id, true, 2);
	for (unsigned i = 0; i < 6; i++)
		fake_receipt(f, expect_submit(f, 0, false)->id);
	fake_receipt_prepared(f, expect_run(f, 1)->id, true, 2);
	fake_receipt(f, expect_submit(f, 0, false)->id); /* the ninth takes the place of the first */
	FAKE_CHECK(f, fake_expect(f, FAKE_VERB(FORGET))->forget->prepared == 1);
	fake_receipt(f, expect_submit(f, 0, false)->id);
	fake_expect_end(f);
}

static void test_one_op_calls_that_come_again_are_prepared(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_one_op);
	kops *k = fake_open(f);
	kops_buffer *b = fake_alloc(k, 1024, KOPS_SHARED);
#define CALL(i) assert_int_equal(kops_transpose(k, fake_matrix(b, 0), fake_matrix(b, 16 + 16 * (i))), 0)
	CALL(0);
	CALL(1);
	CALL(0);
	CALL(0);
	CALL(0);
	for (unsigned i = 2; i < 8; i++)
		CALL(i);
	CALL(0);
	CALL(8);
	CALL(0);
#undef CALL
	kops_close(k);
	fake_stop(f);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fake_setup, fake_teardown)
	const struct CMUnitTest tests[] = {
	    TEST(test_what_is_submitted_again_is_prepared),
	    TEST(test_what_ends_in_the_ring_has_a_receipt),
	    TEST(test_without_room_it_is_sent_whole),
	    TEST(test_an_older_daemon_is_not_asked),
	    TEST(test_after_a_restart_it_is_prepared_anew),
	    TEST(test_a_job_may_be_prepared_before_its_first_run),
	    TEST(test_a_job_that_could_not_be_prepared_runs),
	    TEST(test_a_restart_does_not_prepare_it_again),
	    TEST(test_one_op_calls_that_come_again_are_prepared),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
