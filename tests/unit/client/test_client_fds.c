/*
 * Tests libkops in a program that closes descriptors it does not know, and puts its own files in their place. A
 * lost descriptor is a lost connection, and no byte goes to a file of the program. Also tests a program that
 * was started without standard input, output and error.
 */
#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "fake_daemon.h"
#include "libkops/base/state.h"

/* ---- A program's own files ---- */

/* A socket of the program at a number that libkops had, and its other end. */
struct foreign {
	int number, other;
};

static struct foreign put_in_place_of(int number)
{
	int pair[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(dup3(pair[0], number, O_CLOEXEC), number);
	close(pair[0]);
	return (struct foreign){number, pair[1]};
}

/* Returns true if the file is as the program left it: open, and nothing was written to it. */
static bool is_untouched(const struct foreign *foreign)
{
	char byte;
	return recv(foreign->other, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN &&
	       send(foreign->other, "x", 1, 0) == 1 && recv(foreign->number, &byte, 1, MSG_DONTWAIT) == 1;
}

static void check_and_close(const struct foreign *foreign)
{
	assert_true(is_untouched(foreign));
	close(foreign->number);
	close(foreign->other);
}

/* ---- Between two calls ---- */

/* The first connection must end when its socket is closed. */
static void expect_loss(struct fake *f)
{
	FAKE_CHECK(f, fake_read(f) == NULL);
	fake_hang_up(f);
}

/* On the next connection the buffer must be given again, with its content. */
static void expect_import(struct fake *f, const char *content)
{
	char found[8] = "";
	Kops__V1__Request *r = fake_expect(f, FAKE_VERB(IMPORT));
	FAKE_CHECK(f, f->n_fds == 1);
	FAKE_CHECK(f, pread(f->fds[0], found, 4, 0) == 4 && strcmp(found, content) == 0);
	FAKE_CHECK(f, pwrite(f->fds[0], "back", 4, 32) == 4);
	fake_answer(f, r->id, 0, "");
}

static void script_lost(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	fake_receipt(f, fake_expect(f, FAKE_VERB(SUBMIT))->id);
	expect_loss(f);
	fake_greet(f);
	expect_import(f, "here");
	fake_receipt(f, fake_expect(f, FAKE_VERB(SUBMIT))->id);
	fake_answer(f, fake_expect(f, FAKE_VERB(PING))->id, 0, "");
	fake_expect_end(f);
}

/* The memory stays where it is, with its content, and is shared again. */
static void lose(struct fake *f, bool memfd_too, bool reused)
{
	kops_buffer *b = NULL;
	kops_job *job = fake_start_job(f, script_lost, &b);
	kops *k = b->k;
	char *data = kops_data(b);
	struct foreign foreign[2] = {0};
	unsigned n = 0;
	assert_int_equal(kops_run(job), 0);
	memcpy(data, "here", 4);
	const int numbers[] = {k->link.sock.number, b->fd.number};
	for (int i = 0; i < 1 + memfd_too; i++)
		if (reused)
			foreign[n++] = put_in_place_of(numbers[i]);
		else
			close(numbers[i]);
	assert_int_equal(kops_run(job), 0);
	assert_ptr_equal(kops_data(b), data);
	assert_memory_equal(data, "here", 4);
	assert_memory_equal(data + 32, "back", 4);
	assert_int_equal(kops_ping(k), 0);
	kops_close(k);
	for (unsigned i = 0; i < n; i++)
		check_and_close(&foreign[i]);
	fake_stop(f);
}

static void test_closed(void **state)
{
	lose(*state, true, false);
}

static void test_closed_and_reused(void **state)
{
	lose(*state, true, true);
}

static void test_only_the_socket(void **state)
{
	lose(*state, false, false);
}

static void test_only_the_socket_reused(void **state)
{
	lose(*state, false, true);
}

/* Descriptors that are not needed any more are not closed either. */
static void script_until_the_end(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	expect_loss(f);
}

static void test_close_after_the_numbers_were_reused(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_until_the_end);
	kops *k = fake_open(f);
	kops_buffer *b = fake_alloc(k, 64, KOPS_SHARED);
	struct foreign sock = put_in_place_of(k->link.sock.number), memfd = put_in_place_of(b->fd.number);
	kops_free(b);
	kops_close(k);
	check_and_close(&sock);
	check_and_close(&memfd);
	fake_stop(f);
}

/* A timeout must hold, whatever listens or answers there. */
static void test_no_daemon_any_more(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_until_the_end);
	kops *k = fake_open(f);
	fake_alloc(k, 64, KOPS_SHARED);
	fake_set_timeout(k, 100);
	close(f->listener);
	f->listener = -1;
	unlink(f->path);
	struct foreign sock = put_in_place_of(k->link.sock.number);
	assert_int_equal(kops_ping(k), KOPS_E_CONNECT);
	assert_non_null(strstr(kops_error(k), "no such file; is kopsd running?"));
	kops_close(k);
	check_and_close(&sock);
	fake_stop(f);
}

/* ---- While a job is in flight ---- */

static void script_lost_with_a_job_out(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	for (int i = 0; i < 4; i++) { /* more often than a daemon may die with a job */
		fake_expect(f, FAKE_VERB(SUBMIT));
		fake_reach(f, (unsigned)i + 1);
		expect_loss(f);
		fake_greet(f);
		fake_answer(f, fake_expect(f, FAKE_VERB(IMPORT))->id, 0, "");
	}
	fake_receipt(f, fake_expect(f, FAKE_VERB(SUBMIT))->id);
	fake_expect_end(f);
}

/* The job is sent again, in other memory: the daemon may still use the old one. */
static void test_with_a_job_out(void **state)
{
	struct fake *f = *state;
	kops_buffer *b = NULL;
	kops_job *job = fake_start_job(f, script_lost_with_a_job_out, &b);
	kops *k = b->k;
	assert_int_equal(kops_submit(job, NULL, NULL), 0);
	for (unsigned i = 1; i <= 4; i++) {
		ino_t inode = b->fd.inode;
		assert_true(fake_wait(f, i));
		struct foreign foreign = put_in_place_of(k->link.sock.number);
		while (k->link.state != LINK_UP || k->link.sock.number == foreign.number)
			assert_true(kops_process(k) >= 0);
		assert_true(b->fd.inode != inode);
		check_and_close(&foreign);
	}
	assert_int_equal(kops_wait(job, -1), 0);
	kops_close(k);
	fake_stop(f);
}

static void script_lost_with_a_sum_out(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	fake_expect(f, FAKE_VERB(SUBMIT));
	fake_reach(f, 1);
	expect_loss(f);
}

static void test_with_a_job_out_that_overwrites_its_input(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_lost_with_a_sum_out);
	kops *k = fake_open(f);
	kops_buffer *b = fake_alloc(k, 1024, KOPS_SHARED);
	kops_job *job = fake_gemm(k, b, b, b, 1);
	assert_int_equal(kops_submit(job, NULL, NULL), 0);
	assert_true(fake_wait(f, 1));
	close(k->link.sock.number);
	assert_int_equal(kops_wait(job, -1), KOPS_E_INTERRUPTED);
	assert_non_null(strstr(kops_error(k), "this program closed libkops's connection"));
	kops_close(k);
	fake_stop(f);
}

static void script_no_successor(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	fake_expect(f, FAKE_VERB(SUBMIT));
	close(f->listener);
	f->listener = -1;
	fake_reach(f, 1);
	expect_loss(f);
}

static void script_violation(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	fake_answer(f, fake_expect(f, FAKE_VERB(SUBMIT))->id + 1000, 0, "");
	fake_reach(f, 1);
	expect_loss(f);
}

/* The daemon lives, and writes the job's output after the caller was told of its end. */
static void write_late(struct fake *f, void (*script)(struct fake *), bool closes, int expected)
{
	kops_buffer *b = NULL;
	kops_job *job = fake_start_job(f, script, &b);
	char *data = kops_data(b);
	memcpy(data, "mine", 4);
	assert_int_equal(kops_submit(job, NULL, NULL), 0);
	assert_true(fake_wait(f, 1));
	fake_set_timeout(b->k, 50);
	if (closes)
		close(b->k->link.sock.number);
	assert_int_equal(kops_wait(job, -1), expected);
	assert_false(kops_buffer_is_busy(b));
	assert_int_equal(pwrite(f->memfd, "late", 4, 0), 4);
	assert_memory_equal(data, "mine", 4);
	kops_close(b->k);
	fake_stop(f);
}

static void test_late_writes_after_a_loss(void **state)
{
	write_late(*state, script_no_successor, true, KOPS_E_CONNECT);
}

static void test_late_writes_after_a_violation(void **state)
{
	write_late(*state, script_violation, false, KOPS_E_PROTOCOL);
}

/* ---- Memory that the program shares itself ---- */

static void script_given(struct fake *f)
{
	fake_greet(f);
	fake_answer(f, fake_expect(f, FAKE_VERB(IMPORT))->id, 0, "");
	expect_loss(f);
	fake_greet(f);
	expect_import(f, "here");
	fake_receipt(f, fake_expect(f, FAKE_VERB(SUBMIT))->id);
	fake_expect_end(f);
}

/* Memory whose memfd nobody else has is treated as lent. */
static void test_given_memory(void **state)
{
	struct fake *f = *state;
	kops_buffer *b = NULL;
	int memfd = fake_memfd(4096);
	fake_start(f, script_given);
	kops *k = fake_open(f);
	assert_int_equal(kops_import(k, memfd, 4096, KOPS_GIVEN, &b), 0);
	close(memfd);
	char *data = kops_data(b);
	memcpy(data, "here", 4);
	kops_job *job = fake_transpose(k, fake_matrix(b, 0), fake_matrix(b, 32));
	close(k->link.sock.number);
	struct foreign foreign = put_in_place_of(b->fd.number);
	assert_int_equal(kops_run(job), 0);
	assert_ptr_equal(kops_data(b), data);
	assert_memory_equal(data + 32, "back", 4);
	kops_close(k);
	check_and_close(&foreign);
	fake_stop(f);
}

static void script_lost_import(struct fake *f)
{
	fake_greet(f);
	fake_answer(f, fake_expect(f, FAKE_VERB(IMPORT))->id, 0, "");
	expect_loss(f);
	fake_greet(f);
	Kops__V1__Request *r = fake_expect(f, FAKE_VERB(IMPORT));
	FAKE_CHECK(f, f->n_fds == 0);
	fake_answer(f, r->id, KOPS_E_FD, "no descriptor came");
	fake_answer(f, fake_expect(f, FAKE_VERB(SUBMIT))->id, KOPS_E_NOT_FOUND, "buffer 1 does not exist");
	fake_expect_end(f);
}

/* A copy would not be shared with others, so imported memory is not replaced, and jobs say so. */
static void test_imported_memory(void **state)
{
	struct fake *f = *state;
	kops_buffer *b = NULL;
	int memfd = fake_memfd(4096);
	fake_start(f, script_lost_import);
	kops *k = fake_open(f);
	assert_int_equal(kops_import(k, memfd, 4096, 0, &b), 0);
	kops_job *job = fake_transpose(k, fake_matrix(b, 0), fake_matrix(b, 32));
	close(k->link.sock.number);
	struct foreign foreign = put_in_place_of(b->fd.number);
	assert_int_equal(kops_run(job), KOPS_E_FD);
	assert_non_null(strstr(kops_error(k), "this program closed or replaced the buffer's descriptor"));
	kops_close(k);
	check_and_close(&foreign);
	close(memfd);
	fake_stop(f);
}

/* ---- Event loops ---- */

static void script_lost_in_a_loop(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	fake_expect(f, FAKE_VERB(SUBMIT));
	fake_reach(f, 1);
	expect_loss(f);
	fake_greet(f);
	fake_answer(f, fake_expect(f, FAKE_VERB(IMPORT))->id, 0, "");
	fake_receipt(f, fake_expect(f, FAKE_VERB(SUBMIT))->id);
	fake_expect_end(f);
}

static void test_in_an_event_loop(void **state)
{
	struct fake *f = *state;
	kops_buffer *b = NULL;
	kops_job *job = fake_start_job(f, script_lost_in_a_loop, &b);
	kops *k = b->k;
	assert_int_equal(kops_submit(job, NULL, NULL), 0);
	int number = kops_fd(k);
	assert_true(number >= 0 && fake_wait(f, 1));
	assert_in_range(kops_timeout(k), 0, 1000); /* the loop must look again, whatever it was told */
	struct foreign foreign = put_in_place_of(number);
	assert_int_equal(kops_fd(k), -1);
	assert_int_equal(kops_events(k), 0);
	assert_int_equal(kops_timeout(k), 0);
	while (kops_job_is_out(job)) {
		struct pollfd p = {.fd = kops_fd(k), .events = kops_events(k)};
		assert_true(p.fd != number);
		poll(&p, 1, kops_timeout(k));
		assert_true(kops_process(k) >= 0);
	}
	assert_int_equal(kops_wait(job, 0), 0);
	kops_close(k);
	check_and_close(&foreign);
	fake_stop(f);
}

/* ---- fork() ---- */

/* Closes in a child whose own files have the numbers; the parent computes on. */
static int close_in_child(kops *k, const kops_buffer *b)
{
	struct foreign sock = put_in_place_of(k->link.sock.number), memfd = put_in_place_of(b->fd.number);
	kops_close(k);
	return is_untouched(&sock) && is_untouched(&memfd) ? 0 : 1;
}

static void script_of_the_parent(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	fake_answer(f, fake_expect(f, FAKE_VERB(PING))->id, 0, "");
	fake_expect_end(f);
}

static void test_close_in_a_child(void **state)
{
	struct fake *f = *state;
	int status = -1;
	fake_start(f, script_of_the_parent);
	kops *k = fake_open(f);
	kops_buffer *b = fake_alloc(k, 64, KOPS_SHARED);
	pid_t child = fork();
	if (child == 0)
		_exit(close_in_child(k, b));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(kops_ping(k), 0);
	kops_close(k);
	fake_stop(f);
}

/* ---- Standard input, output and error ---- */

static void script_of_low_numbers(struct fake *f)
{
	f->memfd = -1;
	fake_greet(f);
	fake_lend(f);
	fake_answer(f, fake_expect(f, FAKE_VERB(IMPORT))->id, 0, "");
	fake_hang_up(f);
	fake_greet(f);
	for (int i = 0; i < 2; i++)
		fake_answer(f, fake_expect(f, FAKE_VERB(IMPORT))->id, 0, "");
	fake_answer(f, fake_expect(f, FAKE_VERB(PING))->id, 0, "");
	fake_expect_end(f);
}

#define LOW_CHECK(condition)                                                                                   \
	do {                                                                                                   \
		if (!(condition))                                                                              \
			return __LINE__;                                                                       \
	} while (0)

/* Starts in a child without the descriptors in `closed`. Returns the line that fails; 0: none. */
static int start_low(const struct fake *f, unsigned closed)
{
	kops_buffer *lent = NULL, *imported = NULL;
	char why[512];
	kops *k = NULL;
	int memfd = fake_memfd(64);
	for (int i = 0; i < 3; i++)
		if (closed & 1u << i)
			close(i);
	LOW_CHECK(fake_try_open(f, FAKE_PATIENCE_MS, &k, why) == 0);
	LOW_CHECK(k->link.sock.number > 2);
	LOW_CHECK(kops_alloc(k, 64, KOPS_SHARED, NULL, &lent) == 0);
	LOW_CHECK(lent->fd.number > 2);
	LOW_CHECK(kops_import(k, memfd, 64, 0, &imported) == 0);
	LOW_CHECK(imported->fd.number > 2);
	while (k->link.state == LINK_UP)
		kops_process(k);
	close(lent->fd.number); /* replaced below */
	LOW_CHECK(kops_ping(k) == 0);
	LOW_CHECK(k->link.sock.number > 2 && lent->fd.number > 2);
	for (int i = 0; i < 3; i++)
		if (closed & 1u << i)
			LOW_CHECK(fcntl(i, F_GETFD) < 0);
	kops_close(k);
	return 0;
}

static void test_without_standard_descriptors(void **state)
{
	struct fake *f = *state;
	for (unsigned closed = 1; closed < 8; closed++) {
		int status = -1;
		fake_start(f, script_of_low_numbers);
		pid_t child = fork();
		if (child == 0)
			_exit(start_low(f, closed) % 251);
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_int_equal(status, 0);
		fake_stop(f);
		close(f->memfd);
		f->memfd = -1;
	}
}

/* Only numbers below 3 are free; none may stay open after a failure. */
static int start_without_numbers(const struct fake *f)
{
	const struct rlimit limit = {.rlim_cur = 3, .rlim_max = 3};
	char why[512];
	kops *k = NULL;
	close(0);
	LOW_CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	LOW_CHECK(fake_try_open(f, FAKE_PATIENCE_MS, &k, why) == KOPS_E_CONNECT);
	LOW_CHECK(strstr(why, "this process is out of file descriptors"));
	LOW_CHECK(fcntl(0, F_GETFD) < 0);
	return 0;
}

static void test_without_numbers_above_standard_ones(void **state)
{
	struct fake *f = *state;
	int status = -1;
	pid_t child = fork();
	if (child == 0)
		_exit(start_without_numbers(f) % 251);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

/* ---- What it costs ---- */

static unsigned looks; /* this thread's looks at descriptors */
static pthread_t looker;
static bool looks_fail;

/* libkops's calls also come here. */
int fstat(int fd, struct stat *ret)
{
	static int (*real)(int, struct stat *);
	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "fstat");
	looks += pthread_equal(pthread_self(), looker) != 0;
	errno = EPERM;
	return looks_fail ? -1 : real(fd, ret);
}

static void script_of_a_run(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	fake_receipt(f, fake_expect(f, FAKE_VERB(SUBMIT))->id);
	fake_receipt(f, fake_expect(f, FAKE_VERB(SUBMIT))->id);
	fake_expect_end(f);
}

/* One look per call, where the only sleep is in receiving. */
static void test_one_look_a_call(void **state)
{
	struct fake *f = *state;
	kops_buffer *b = NULL;
	kops_job *job = fake_start_job(f, script_of_a_run, &b);
	looker = pthread_self();
	for (int i = 0; i < 2; i++) {
		looks = 0;
		assert_int_equal(kops_run(job), 0);
		assert_int_equal(looks, 1);
	}
	kops_close(b->k);
	fake_stop(f);
}

/* A filter of system calls may hide everything but that the descriptor exists. */
static void test_descriptors_that_cannot_be_examined(void **state)
{
	struct fake *f = *state;
	kops_buffer *b = NULL;
	kops_job *job = fake_start_job(f, script_of_a_run, &b);
	assert_int_equal(kops_run(job), 0);
	looks_fail = true;
	int status = kops_run(job);
	kops_close(b->k);
	looks_fail = false;
	assert_int_equal(status, 0);
	fake_stop(f);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fake_setup, fake_teardown)
	const struct CMUnitTest tests[] = {
	    TEST(test_closed),
	    TEST(test_closed_and_reused),
	    TEST(test_only_the_socket),
	    TEST(test_only_the_socket_reused),
	    TEST(test_close_after_the_numbers_were_reused),
	    TEST(test_no_daemon_any_more),
	    TEST(test_with_a_job_out),
	    TEST(test_with_a_job_out_that_overwrites_its_input),
	    TEST(test_late_writes_after_a_loss),
	    TEST(test_late_writes_after_a_violation),
	    TEST(test_given_memory),
	    TEST(test_imported_memory),
	    TEST(test_in_an_event_loop),
	    TEST(test_close_in_a_child),
	    TEST(test_without_standard_descriptors),
	    TEST(test_without_numbers_above_standard_ones),
	    TEST(test_one_look_a_call),
	    TEST(test_descriptors_that_cannot_be_examined),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
