/* Tests libkops against a scripted daemon that lends a ring: who wakes whom, and invalid rings and ends. */
#include <poll.h>

#include "fake_daemon.h"
#include "seed.h"

enum { ENTRIES = 4, JOBS = 2 };

/* ---- The daemon's side ---- */

struct lent_ring {
	uint32_t entries;    /* as claimed */
	uint64_t bytes;      /* as claimed; 0: what these entries take */
	uint64_t real_bytes; /* 0: as claimed */
	bool without_fd, unsealed;
	bool refused;
};

static struct ring_memory *memory; /* of the last ring that was lent */

static void unmap(void)
{
	if (memory)
		munmap(memory, ring_bytes(ENTRIES));
	memory = NULL;
}

static void lend(struct fake *f, const struct lent_ring *lent)
{
	Kops__V1__Ring ring = KOPS__V1__RING__INIT;
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	Kops__V1__Request *r = fake_expect(f, FAKE_VERB(OPEN_RING));
	FAKE_CHECK(f, r->open_ring->entries == ENTRIES);
	if (lent->refused) {
		fake_answer(f, r->id, KOPS_E_QUOTA, "no ring");
		return;
	}
	ring.entries = lent->entries;
	ring.bytes = lent->bytes ? lent->bytes : ring_bytes(lent->entries);
	uint64_t real_bytes = lent->real_bytes ? lent->real_bytes : ring.bytes;
	int fd =
	    lent->unsealed ? memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING) : fake_memfd(real_bytes);
	FAKE_CHECK(f, !lent->unsealed || ftruncate(fd, (off_t)real_bytes) == 0);
	unmap();
	memory = mmap(NULL, ring_bytes(ENTRIES), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	reply.id = r->id;
	reply.body_case = KOPS__V1__REPLY__BODY_RING;
	reply.ring = &ring;
	fake_send(f, &reply, lent->without_fd ? -1 : fd);
	close(fd);
}

/* Lets n jobs be prepared. After the first the client asks for the ring. */
static void prepare(struct fake *f, unsigned n, const struct lent_ring *lent)
{
	f->prepares = true;
	f->ring_entries = ENTRIES;
	fake_greet(f);
	fake_lend(f);
	for (unsigned i = 0; i < n; i++) {
		fake_receipt(f, fake_expect(f, FAKE_VERB(SUBMIT))->id);
		fake_receipt_prepared(f, fake_expect(f, FAKE_VERB(SUBMIT))->id, false, 2);
		if (i == 0)
			lend(f, lent);
	}
}

static void begin(struct fake *f)
{
	prepare(f, JOBS, &(struct lent_ring){.entries = ENTRIES});
	fake_answer(f, fake_expect(f, FAKE_VERB(PING))->id, 0, "");
}

/* Accepts the next connection, on which one job is sent. */
static void begin_again(struct fake *f)
{
	fake_accept(f);
	uint64_t hello = fake_expect(f, FAKE_VERB(HELLO))->id;
	fake_expect(f, FAKE_VERB(IMPORT));
	uint64_t job = fake_expect(f, FAKE_VERB(SUBMIT))->id;
	fake_welcome(f, hello, 1);
	fake_receipt(f, job);
}

/* Waits for the n-th run, counted from 0, and returns its id. */
static uint64_t run_id(struct fake *f, uint32_t n)
{
	for (unsigned ms = 0; ring_load(&memory->run_tail) <= n; ms++) {
		if (ms == FAKE_PATIENCE_MS)
			fake_fail(f, "no run came by the ring");
		usleep(1000);
	}
	ring_store(&memory->run_head, n + 1);
	return ring_runs(memory)[n % ENTRIES].id;
}

static void write_end(uint32_t n, uint64_t id)
{
	ring_ends(memory, ENTRIES)[n % ENTRIES] =
	    (struct ring_end){.id = id, .flags = RING_PREPARED, .compute_us = 3, .total_us = 5};
}

static void wake(struct fake *f)
{
	Kops__V1__Woken woken = KOPS__V1__WOKEN__INIT;
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	reply.body_case = KOPS__V1__REPLY__BODY_WOKEN;
	reply.woken = &woken;
	fake_send(f, &reply, -1);
}

/* Writes the n-th end, and wakes the client if it sleeps. */
static void end(struct fake *f, uint32_t n, uint64_t id)
{
	write_end(n, id);
	if (ring_publish(&memory->end_tail, n + 1, &memory->client_sleeps))
		wake(f);
}

/* ---- The client's side ---- */

/* Opens a handle with n prepared jobs. */
static kops *open_with(const struct fake *f, unsigned n, kops_job *jobs[])
{
	kops *k = fake_open(f);
	kops_buffer *b = fake_alloc(k, 32 * JOBS, KOPS_SHARED);
	for (unsigned i = 0; i < n; i++) {
		jobs[i] = fake_transpose(k, fake_matrix(b, 32 * i), fake_matrix(b, 32 * i + 16));
		assert_int_equal(kops_run(jobs[i]), 0);
		assert_int_equal(kops_run(jobs[i]), 0);
	}
	return k;
}

static kops *open_jobs(const struct fake *f, kops_job *jobs[JOBS])
{
	kops *k = open_with(f, JOBS, jobs);
	assert_int_equal(kops_ping(k), 0);
	return k;
}

static void submit_all(kops_job *jobs[JOBS])
{
	for (unsigned i = 0; i < JOBS; i++)
		assert_int_equal(kops_submit(jobs[i], NULL, NULL), 0);
}

/* Works like an event loop until the job has ended. */
static void loop_until_ended(kops *k, const kops_job *job)
{
	while (kops_job_is_out(job)) {
		struct pollfd p = {.fd = kops_fd(k), .events = kops_events(k)};
		int timeout = kops_timeout(k);
		if (poll(&p, p.fd >= 0, timeout < 0 ? FAKE_PATIENCE_MS : timeout) == 0 && timeout < 0)
			fail_msg("nothing woke the event loop");
		kops_process(k);
	}
}

static void stop(struct fake *f, kops *k)
{
	kops_close(k);
	fake_stop(f);
	unmap();
}

/* ---- Runs ---- */

static void script_runs(struct fake *f)
{
	begin(f);
	for (uint32_t n = 0; n < 3 * ENTRIES; n++)
		end(f, n, run_id(f, n));
	fake_expect_end(f);
}

static void test_runs_and_their_ends(void **state)
{
	struct fake *f = *state;
	kops_job *jobs[JOBS];
	fake_start(f, script_runs);
	kops *k = open_jobs(f, jobs);
	for (unsigned i = 0; i < 3 * ENTRIES; i++) {
		assert_int_equal(kops_run(jobs[i % JOBS]), 0);
		const kops_receipt *receipt = kops_job_receipt(jobs[i % JOBS]);
		assert_true(receipt->prepared && receipt->compute_us == 3 && receipt->total_us == 5);
	}
	stop(f, k);
}

/* The second end comes after the loop slept, was woken for the first, and sleeps again. */
static void script_one_by_one(struct fake *f)
{
	begin(f);
	uint64_t first = run_id(f, 0), second = run_id(f, 1);
	end(f, 0, first);
	FAKE_CHECK(f, fake_wait(f, 1));
	end(f, 1, second);
	fake_expect_end(f);
}

static void script_one_job(struct fake *f)
{
	prepare(f, 1, &(struct lent_ring){.entries = ENTRIES});
	fake_answer(f, fake_expect(f, FAKE_VERB(PING))->id, 0, "");
	fake_expect_end(f);
}

/* The daemon then knows whether somebody looks for each end. */
static void test_the_ring_tells_how_long_the_client_spins(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_one_job);
	kops *k = fake_open(f);
	k->spin_us = 7;
	kops_buffer *b = fake_alloc(k, 32, KOPS_SHARED);
	kops_job *job = fake_transpose(k, fake_matrix(b, 0), fake_matrix(b, 16));
	assert_int_equal(kops_run(job), 0);
	assert_int_equal(kops_run(job), 0);
	assert_int_equal(kops_ping(k), 0);
	assert_int_equal(ring_load(&memory->client_spins), 7);
	stop(f, k);
}

static void test_an_event_loop_is_woken_for_each_end(void **state)
{
	struct fake *f = *state;
	kops_job *jobs[JOBS];
	fake_start(f, script_one_by_one);
	kops *k = open_jobs(f, jobs);
	submit_all(jobs);
	loop_until_ended(k, jobs[0]);
	fake_reach(f, 1);
	loop_until_ended(k, jobs[1]);
	stop(f, k);
}

static void test_an_event_loop_is_woken_after_a_wait(void **state)
{
	struct fake *f = *state;
	kops_job *jobs[JOBS];
	fake_start(f, script_one_by_one);
	kops *k = open_jobs(f, jobs);
	submit_all(jobs);
	assert_int_equal(kops_wait(jobs[0], -1), 0);
	fake_reach(f, 1);
	loop_until_ended(k, jobs[1]);
	stop(f, k);
}

/* ---- Invalid rings ---- */

static const struct lent_ring wrong_rings[] = {
    {.entries = ENTRIES - 1}, /* no power of 2 */
    {.entries = 2 * RING_ENTRIES_MAX},
    {.entries = ENTRIES, .without_fd = true},
    {.entries = ENTRIES, .bytes = RING_HEAD_BYTES},
    {.entries = ENTRIES, .real_bytes = RING_HEAD_BYTES},
    {.entries = ENTRIES, .unsealed = true}, /* it could shrink */
};

static const struct lent_ring *wrong_ring;

static void script_wrong_ring(struct fake *f)
{
	prepare(f, 1, wrong_ring);
	while (fake_read(f))
		;
	fake_hang_up(f);
}

static void test_rings_that_cannot_be(void **state)
{
	struct fake *f = *state;
	for (size_t i = 0; i < sizeof wrong_rings / sizeof wrong_rings[0]; i++) {
		kops_job *job;
		wrong_ring = &wrong_rings[i];
		fake_start(f, script_wrong_ring);
		kops *k = open_with(f, 1, &job);
		assert_int_equal(kops_run(job), KOPS_E_PROTOCOL);
		assert_non_null(strstr(kops_error(k), "ring"));
		stop(f, k);
	}
}

/* Runs go by the socket, and the ring is not asked for again. */
static void script_refused_ring(struct fake *f)
{
	prepare(f, JOBS, &(struct lent_ring){.refused = true});
	fake_answer(f, fake_expect(f, FAKE_VERB(PING))->id, 0, "");
	for (unsigned i = 0; i < 2 * JOBS; i++)
		fake_receipt_prepared(f, fake_expect(f, FAKE_VERB(RUN))->id, true, 2);
	fake_expect_end(f);
}

static void test_a_ring_that_is_refused(void **state)
{
	struct fake *f = *state;
	kops_job *jobs[JOBS];
	fake_start(f, script_refused_ring);
	kops *k = open_jobs(f, jobs);
	for (unsigned i = 0; i < 2 * JOBS; i++) {
		assert_int_equal(kops_run(jobs[i % JOBS]), 0);
		assert_true(kops_job_receipt(jobs[i % JOBS])->prepared);
	}
	stop(f, k);
}

/* ---- Invalid ends ---- */

static void (*write_wrong)(struct fake *f, uint64_t first, uint64_t second);

static void too_many_ends(struct fake *f, uint64_t first, uint64_t second)
{
	write_end(0, first);
	write_end(1, second);
	ring_store(&memory->end_tail, ENTRIES + 1);
	wake(f);
}

static void a_tail_that_goes_back(struct fake *f, uint64_t first, uint64_t second)
{
	(void)first;
	(void)second;
	ring_store(&memory->end_tail, UINT32_MAX);
	wake(f);
}

static void an_end_of_nothing(struct fake *f, uint64_t first, uint64_t second)
{
	(void)first;
	end(f, 0, second + 4096);
}

static void one_that_ends_twice(struct fake *f, uint64_t first, uint64_t second)
{
	(void)second;
	write_end(0, first);
	end(f, 1, first);
}

/* Two runs are in flight. The invalid end breaks that connection; the next one is valid. */
static void script_wrong_ends(struct fake *f)
{
	begin(f);
	uint64_t first = run_id(f, 0), second = run_id(f, 1);
	write_end(1, first);
	write_wrong(f, first, second);
	while (fake_read(f))
		;
	fake_hang_up(f);
	begin_again(f);
	fake_expect_end(f);
}

static void check_wrong_ends(struct fake *f, void (*wrong)(struct fake *, uint64_t, uint64_t))
{
	kops_job *jobs[JOBS];
	write_wrong = wrong;
	fake_start(f, script_wrong_ends);
	kops *k = open_jobs(f, jobs);
	submit_all(jobs);
	assert_int_equal(kops_wait(jobs[1], -1), KOPS_E_PROTOCOL);
	assert_false(kops_job_is_out(jobs[0]));
	assert_int_equal(kops_run(jobs[0]), 0);
	stop(f, k);
}

static void test_more_ends_than_the_ring_holds(void **state)
{
	check_wrong_ends(*state, too_many_ends);
}

static void test_a_tail_that_goes_back(void **state)
{
	check_wrong_ends(*state, a_tail_that_goes_back);
}

static void test_an_end_of_nothing(void **state)
{
	check_wrong_ends(*state, an_end_of_nothing);
}

static void test_a_run_that_ends_twice(void **state)
{
	check_wrong_ends(*state, one_that_ends_twice);
}

static void script_wrong_reply(struct fake *f)
{
	begin(f);
	uint64_t first = run_id(f, 0), second = run_id(f, 1);
	fake_answer(f, second + 4096, 0, "");
	write_end(0, first);
	write_end(1, second);
	ring_store(&memory->end_tail, 2);
	fake_reach(f, 1);
	while (fake_read(f))
		;
}

/* The memory that the jobs wrote is the client's no more: they did not succeed. */
static void test_ends_behind_a_wrong_reply(void **state)
{
	struct fake *f = *state;
	kops_job *jobs[JOBS];
	fake_start(f, script_wrong_reply);
	kops *k = open_jobs(f, jobs);
	submit_all(jobs);
	assert_true(fake_wait(f, 1));
	assert_int_equal(kops_process(k), KOPS_E_PROTOCOL);
	for (unsigned i = 0; i < JOBS; i++)
		assert_int_equal(kops_wait(jobs[i], 0), KOPS_E_PROTOCOL);
	stop(f, k);
}

/* ---- Daemons that die, or write anything ---- */

static void script_death(struct fake *f)
{
	begin(f);
	write_end(0, run_id(f, 0));
	run_id(f, 1);
	ring_store(&memory->end_tail, 1);
	fake_hang_up(f);
	begin_again(f);
	fake_expect_end(f);
}

static void test_a_death_with_runs_out(void **state)
{
	struct fake *f = *state;
	kops_job *jobs[JOBS];
	fake_start(f, script_death);
	kops *k = open_jobs(f, jobs);
	submit_all(jobs);
	assert_int_equal(kops_wait(jobs[1], -1), 0);
	assert_int_equal(kops_wait(jobs[0], -1), 0);
	assert_true(kops_job_receipt(jobs[0])->total_us == 5); /* it had ended, and is not sent again */
	stop(f, k);
}

static uint64_t random_state;

static uint64_t below(uint64_t n)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (random_state >> 33) % n;
}

static void scribble(void)
{
	const uint32_t values[] = {0,           1,         2,          ENTRIES,
	                           ENTRIES + 1, INT32_MAX, UINT32_MAX, (uint32_t)below(UINT32_MAX)};
	uint64_t from = below(2) ? 0 : RING_HEAD_BYTES;
	uint64_t words = (from ? ring_bytes(ENTRIES) - RING_HEAD_BYTES : sizeof *memory) / 4;
	uint32_t *word = (uint32_t *)(void *)((char *)memory + from) + below(words);
	__atomic_store_n(word, values[below(8)], __ATOMIC_RELAXED);
}

static void script_scribble(struct fake *f)
{
	begin(f);
	struct pollfd p = {.fd = f->sock, .events = POLLRDHUP};
	while (poll(&p, 1, 0) == 0)
		scribble();
	fake_hang_up(f);
}

static void script_lost_socket(struct fake *f)
{
	begin(f);
	FAKE_CHECK(f, fake_read(f) == NULL);
	fake_hang_up(f);
	begin_again(f);
	fake_expect_end(f);
}

/* Replaces the socket by another file of the program, on which the client must not sleep. */
static void test_a_run_when_the_socket_is_lost(void **state)
{
	struct fake *f = *state;
	kops_job *jobs[JOBS];
	int pair[2];
	fake_start(f, script_lost_socket);
	kops *k = open_jobs(f, jobs);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	int number = k->link.sock.number;
	assert_int_equal(dup3(pair[0], number, O_CLOEXEC), number);
	assert_int_equal(kops_run(jobs[0]), 0);
	assert_false(kops_job_receipt(jobs[0])->prepared); /* sent anew */
	stop(f, k);
	assert_true(recv(pair[1], &(char){0}, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
	close(number);
	close(pair[0]);
	close(pair[1]);
}

static void test_a_daemon_that_writes_anything(void **state)
{
	struct fake *f = *state;
	random_state = seed_of_run();
	for (unsigned i = 0; i < 20; i++) {
		kops_job *jobs[JOBS];
		fake_start(f, script_scribble);
		kops *k = open_jobs(f, jobs);
		submit_all(jobs);
		for (unsigned j = 0; j < JOBS; j++) {
			int status = kops_wait(jobs[j], 5);
			assert_true(status == 0 || status == KOPS_E_TIMEOUT || status == KOPS_E_PROTOCOL);
		}
		kops_process(k);
		stop(f, k);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fake_setup, fake_teardown)
	const struct CMUnitTest tests[] = {
	    TEST(test_runs_and_their_ends),
	    TEST(test_the_ring_tells_how_long_the_client_spins),
	    TEST(test_an_event_loop_is_woken_for_each_end),
	    TEST(test_an_event_loop_is_woken_after_a_wait),
	    TEST(test_rings_that_cannot_be),
	    TEST(test_a_ring_that_is_refused),
	    TEST(test_more_ends_than_the_ring_holds),
	    TEST(test_a_tail_that_goes_back),
	    TEST(test_an_end_of_nothing),
	    TEST(test_a_run_that_ends_twice),
	    TEST(test_ends_behind_a_wrong_reply),
	    TEST(test_a_death_with_runs_out),
	    TEST(test_a_run_when_the_socket_is_lost),
	    TEST(test_a_daemon_that_writes_anything),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
