/* Tests libkops in children of fork() and vfork(): a scripted daemon sees what reaches the connection. */
#include "fake_daemon.h"

#include <sys/resource.h>
#include <sys/wait.h>

#include "libkops/base/state.h"

/* ---- Children ---- */

/* Runs in a child, where cmocka's assertions would run the parent's tests. Returns what is wrong, or NULL. */
typedef const char *child_main(void *data);

#define CHILD_CHECK(condition)                                                                                 \
	do {                                                                                                   \
		if (!(condition))                                                                              \
			return "not " #condition;                                                              \
	} while (0)

_Noreturn static void end_child(const char *wrong)
{
	if (wrong)
		fprintf(stderr, "the child: %s\n", wrong);
	_exit(wrong ? 1 : 0);
}

static void wait_for(pid_t child)
{
	int status = -1;
	assert_true(child > 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static pid_t start_child(child_main *run, void *data)
{
	pid_t child = fork();
	if (child == 0)
		end_child(run(data));
	return child;
}

static void in_child(child_main *run, void *data)
{
	wait_for(start_child(run, data));
}

/* ---- What a child may call ---- */

/* Returns true if this process has memory at the address. */
static bool is_mapped(const void *address)
{
	int pipes[2];
	if (pipe2(pipes, O_CLOEXEC) < 0)
		return true;
	bool mapped = write(pipes[1], address, 1) == 1;
	close(pipes[0]);
	close(pipes[1]);
	return mapped;
}

struct parent {
	kops *k;
	kops_buffer *lent, *resident;
	kops_job *fresh, *out;
	void *data;
	int memfd;
	pid_t pid;
};

static bool is_refused(const struct parent *p, int status)
{
	char sentence[128];
	snprintf(sentence, sizeof sentence,
	         "this handle belongs to process %d, which forked; open one of your own with kops_open()",
	         (int)p->pid);
	return status == KOPS_E_STATE && strcmp(kops_error(p->k), sentence) == 0;
}

static const char *call_everything(void *data)
{
	struct parent *p = data;
	kops *k = p->k;
	kops_job *job = NULL;
	kops_buffer *b = NULL;
	kops_info *info = NULL;
	kops_view v = fake_matrix(p->lent, 0), w = fake_matrix(p->lent, 32);

	CHILD_CHECK(is_refused(p, kops_ping(k)));
	CHILD_CHECK(is_refused(p, kops_query(k, &info)));
	CHILD_CHECK(is_refused(p, kops_alloc(k, 64, KOPS_SHARED, NULL, &b)));
	CHILD_CHECK(is_refused(p, kops_import(k, p->memfd, 64, 0, &b)));
	CHILD_CHECK(is_refused(p, kops_alloc_start(k, 64, KOPS_SHARED, NULL, NULL, NULL, &b)));
	CHILD_CHECK(is_refused(p, kops_import_start(k, p->memfd, 64, 0, NULL, NULL, &b)));
	CHILD_CHECK(is_refused(p, kops_buffer_wait(p->lent, -1)));
	CHILD_CHECK(is_refused(p, kops_job_new(k, NULL, &job)));
	CHILD_CHECK(is_refused(p, kops_job_gemm(p->fresh, 1, v, v, 0, w, KOPS_PRECISION_F32, NULL)));
	CHILD_CHECK(is_refused(p, kops_job_softmax(p->fresh, v, w, 1, false, NULL)));
	CHILD_CHECK(is_refused(p, kops_job_transpose(p->fresh, v, w, NULL)));
	CHILD_CHECK(is_refused(p, kops_job_add(p->fresh, v, v, w, NULL)));
	CHILD_CHECK(is_refused(p, kops_job_copy(p->fresh, v, w, NULL)));
	CHILD_CHECK(is_refused(p, kops_job_reduce(p->fresh, v, w, KOPS_SUM, NULL)));
	CHILD_CHECK(is_refused(p, kops_job_prepare(p->fresh)));
	CHILD_CHECK(is_refused(p, kops_submit(p->fresh, NULL, NULL)));
	CHILD_CHECK(is_refused(p, kops_run(p->fresh)));
	CHILD_CHECK(is_refused(p, kops_run_for(p->fresh, 1)));
	CHILD_CHECK(is_refused(p, kops_submit_and_wait(p->fresh, 1)));
	CHILD_CHECK(is_refused(p, kops_buffer_wait_idle(p->lent, -1)));
	CHILD_CHECK(!kops_buffer_is_busy(p->lent));
	CHILD_CHECK(is_refused(p, kops_wait(p->out, -1)));
	CHILD_CHECK(is_refused(p, kops_wait(p->fresh, 0)));
	CHILD_CHECK(is_refused(p, kops_cancel(p->out)));
	CHILD_CHECK(is_refused(p, kops_process(k)));
	CHILD_CHECK(
	    is_refused(p, kops_sgemm(k, KOPS_N, KOPS_N, 2, 2, 2, 1, p->lent, 2, p->lent, 2, 0, p->lent, 2)));
	CHILD_CHECK(
	    is_refused(p, kops_dgemm(k, KOPS_N, KOPS_N, 2, 2, 2, 1, p->lent, 2, p->lent, 2, 0, p->lent, 2)));
	CHILD_CHECK(is_refused(p, kops_softmax(k, v, w, 1)));
	CHILD_CHECK(is_refused(p, kops_transpose(k, v, w)));
	CHILD_CHECK(is_refused(p, kops_add(k, v, v, w)));
	CHILD_CHECK(is_refused(p, kops_copy(k, v, w)));
	CHILD_CHECK(is_refused(p, kops_reduce(k, v, w, KOPS_SUM)));
	CHILD_CHECK(!job && !b && !info);
	CHILD_CHECK(kops_fd(k) == -1 && kops_events(k) == 0 && kops_timeout(k) == -1);
	CHILD_CHECK(kops_data(p->lent) == NULL && kops_size(p->lent) == 64);
	CHILD_CHECK(!is_mapped(p->data));
	kops_free(p->lent);
	kops_free(p->resident);
	kops_job_free(p->fresh);
	kops_job_free(p->out);
	return NULL;
}

/* Calls everything, and finally kops_close(); what lies at the buffer's old address must stay. */
static const char *call_everything_and_close(void *data)
{
	struct parent *p = data;
	const char *wrong = call_everything(data);
	if (wrong)
		return wrong;
	int *other = mmap(p->data, 4096, PROT_READ | PROT_WRITE,
	                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	CHILD_CHECK(other == p->data);
	*other = 4711;
	int before = count_fds();
	kops_close(p->k);
	CHILD_CHECK(before - count_fds() == 2); /* the socket and the lent buffer's memfd */
	CHILD_CHECK(*other == 4711);
	return NULL;
}

static void script_undisturbed(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	fake_lend(f);
	uint64_t id = fake_expect(f, FAKE_VERB(SUBMIT))->id;
	f->ids[0] = id;
	/* The next request must be the parent's after its children, which sent none. */
	Kops__V1__Request *r = fake_expect(f, FAKE_VERB(PING));
	fake_receipt(f, id);
	fake_answer(f, r->id, 0, "");
	fake_receipt(f, fake_expect(f, FAKE_VERB(SUBMIT))->id);
	fake_expect_end(f);
}

static void open_parent(struct fake *f, struct parent *p)
{
	p->pid = getpid();
	p->k = fake_open(f);
	p->lent = fake_alloc(p->k, 64, KOPS_SHARED);
	p->resident = fake_alloc(p->k, 64, KOPS_RESIDENT);
	p->data = kops_data(p->lent);
	p->memfd = fake_memfd(64);
	p->out = fake_transpose(p->k, fake_matrix(p->lent, 0), fake_matrix(p->lent, 32));
	p->fresh = fake_transpose(p->k, fake_matrix(p->lent, 0), fake_matrix(p->lent, 32));
	assert_int_equal(kops_submit(p->out, NULL, NULL), 0);
}

static void close_parent(struct fake *f, struct parent *p)
{
	kops_close(p->k);
	close(p->memfd);
	fake_stop(f);
}

static void test_child_is_refused_and_parent_goes_on(void **state)
{
	struct fake *f = *state;
	struct parent p;
	fake_start(f, script_undisturbed);
	open_parent(f, &p);
	memcpy(p.data, "kept", 4);
	in_child(call_everything, &p);
	in_child(call_everything_and_close, &p);
	assert_string_equal(kops_error(p.k), "");
	assert_memory_equal(kops_data(p.lent), "kept", 4);
	assert_true(kops_fd(p.k) >= 0);
	assert_int_equal(kops_ping(p.k), 0);
	assert_int_equal(kops_wait(p.out, -1), 0);
	assert_int_equal(kops_run(p.fresh), 0);
	close_parent(f, &p);
}

/* Tests kernels without MADV_WIPEONFORK. */
static void test_pids_tell_a_child_too(void **state)
{
	struct fake *f = *state;
	struct parent p;
	fake_start(f, script_undisturbed);
	open_parent(f, &p);
	assert_non_null(p.k->own);
	munmap((void *)p.k->own, sizeof *p.k->own);
	p.k->own = NULL;
	in_child(call_everything_and_close, &p);
	assert_int_equal(kops_ping(p.k), 0);
	assert_int_equal(kops_wait(p.out, -1), 0);
	assert_int_equal(kops_run(p.fresh), 0);
	close_parent(f, &p);
}

static const char *fork_again(void *data)
{
	pid_t grandchild = start_child(call_everything_and_close, data);
	int status = -1;
	CHILD_CHECK(waitpid(grandchild, &status, 0) == grandchild && status == 0);
	return call_everything(data);
}

/* Returns true if this process may write there. */
static bool is_writable(void *address)
{
	int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	bool writable = read(zero, address, 1) == 1;
	close(zero);
	return writable;
}

static const char *check_inherited(const struct parent *p)
{
	char *data = kops_inherit(p->lent);
	CHILD_CHECK(data && data == p->data);
	CHILD_CHECK(!kops_inherit(p->lent)); /* it lies there already */
	CHILD_CHECK(!kops_inherit(p->resident));
	CHILD_CHECK(memcmp(data, "kept", 4) == 0);
	CHILD_CHECK(is_writable(data));
	memcpy(data, "mine", 4);
	return NULL;
}

/* A grandchild must see what its parent sees. */
static const char *see_the_same(void *data)
{
	struct parent *p = data;
	CHILD_CHECK(memcmp(p->data, "mine", 4) == 0);
	return NULL;
}

static const char *inherit_memory(void *data)
{
	struct parent *p = data;
	const char *wrong = check_inherited(p);
	int status = -1;
	if (wrong)
		return wrong;
	CHILD_CHECK(waitpid(start_child(see_the_same, p), &status, 0) > 0 && status == 0);
	kops_close(p->k);
	CHILD_CHECK(memcmp(p->data, "mine", 4) == 0);
	return NULL;
}

/* The program closed the descriptor, and used its number for its own file. */
static const char *inherit_after_closing(void *data)
{
	struct parent *p = data;
	int other = open("/dev/zero", O_RDWR | O_CLOEXEC);
	CHILD_CHECK(other >= 0 && dup2(other, p->lent->fd.number) == p->lent->fd.number);
	CHILD_CHECK(!kops_inherit(p->lent));
	close(p->lent->fd.number);
	CHILD_CHECK(!kops_inherit(p->lent));
	return NULL;
}

static const char *inherit_where_copies_have_no_memory(void *data)
{
	struct parent *p = data;
	const struct rlimit none = {0, 0};
	CHILD_CHECK(setrlimit(RLIMIT_DATA, &none) == 0);
	CHILD_CHECK(kops_inherit(p->lent) == p->data);
	CHILD_CHECK(memcmp(p->data, "kept", 4) == 0);
	CHILD_CHECK(!is_writable(p->data));
	return NULL;
}

static const char *inherit_beside_something_else(void *data)
{
	struct parent *p = data;
	int *other = mmap(p->data, 4096, PROT_READ | PROT_WRITE,
	                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	CHILD_CHECK(other == p->data);
	*other = 4711;
	CHILD_CHECK(!kops_inherit(p->lent) && *other == 4711);
	return NULL;
}

static void test_children_may_inherit_memory(void **state)
{
	struct fake *f = *state;
	struct parent p;
	fake_start(f, script_undisturbed);
	open_parent(f, &p);
	memcpy(p.data, "kept", 4);
	assert_null(kops_inherit(p.lent)); /* not in a child */
	in_child(inherit_memory, &p);
	in_child(inherit_after_closing, &p);
	in_child(inherit_where_copies_have_no_memory, &p);
	in_child(inherit_beside_something_else, &p);
	assert_memory_equal(kops_data(p.lent), "kept", 4);
	assert_int_equal(kops_ping(p.k), 0);
	assert_int_equal(kops_wait(p.out, -1), 0);
	assert_int_equal(kops_run(p.fresh), 0);
	close_parent(f, &p);
}

static void test_grandchildren(void **state)
{
	struct fake *f = *state;
	struct parent p;
	fake_start(f, script_undisturbed);
	open_parent(f, &p);
	in_child(fork_again, &p);
	assert_int_equal(kops_ping(p.k), 0);
	assert_int_equal(kops_wait(p.out, -1), 0);
	assert_int_equal(kops_run(p.fresh), 0);
	close_parent(f, &p);
}

static void script_made_in_the_end(struct fake *f)
{
	fake_greet(f);
	uint64_t id = fake_expect(f, FAKE_VERB(ALLOC))->id;
	FAKE_CHECK(f, fake_wait(f, 1));
	fake_lent(f, id, -1, "gpu1");
	fake_expect_end(f);
}

static void count_call(kops_buffer *b, int status, void *user)
{
	(void)b, (void)status;
	++*(unsigned *)user;
}

static const char *close_copy(void *data)
{
	kops_buffer *b = data;
	kops *k = b->k;
	CHILD_CHECK(kops_process(k) == KOPS_E_STATE);
	kops_free(b);
	kops_close(k);
	return NULL;
}

/* Nobody uses the child's copy of a buffer that is being made. */
static void test_child_while_a_buffer_is_made(void **state)
{
	struct fake *f = *state;
	kops_buffer *b = NULL;
	unsigned calls = 0;
	fake_start(f, script_made_in_the_end);
	kops *k = fake_open(f);
	assert_int_equal(kops_alloc_start(k, 64, KOPS_RESIDENT, NULL, count_call, &calls, &b), 0);
	in_child(close_copy, b);
	fake_reach(f, 1);
	assert_int_equal(kops_buffer_wait(b, -1), 0);
	assert_int_equal(calls, 1);
	kops_close(k);
	fake_stop(f);
}

/* ---- A child's own handle ---- */

static void script_two_handles(struct fake *f)
{
	fake_greet(f);
	int parent = f->sock;
	fake_greet(f); /* the child's */
	fake_answer(f, fake_expect(f, FAKE_VERB(PING))->id, 0, "");
	fake_expect_end(f);
	f->sock = parent;
	fake_answer(f, fake_expect(f, FAKE_VERB(PING))->id, 0, "");
	fake_expect_end(f);
}

struct family {
	struct fake *f;
	kops *k;
};

static const char *open_own(void *data)
{
	struct family *family = data;
	kops *own = NULL;
	char why[512];
	CHILD_CHECK(fake_try_open(family->f, 5000, &own, why) == 0);
	CHILD_CHECK(kops_ping(family->k) == KOPS_E_STATE);
	CHILD_CHECK(kops_ping(own) == 0);
	kops_close(own);
	CHILD_CHECK(kops_ping(family->k) == KOPS_E_STATE);
	return NULL;
}

static void test_child_with_a_handle_of_its_own(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_two_handles);
	struct family family = {.f = f, .k = fake_open(f)};
	in_child(open_own, &family);
	assert_int_equal(kops_ping(family.k), 0);
	kops_close(family.k);
	fake_stop(f);
}

/* ---- The end of the session ---- */

static const char *sleep_until_killed(void *data)
{
	(void)data;
	while (pause() < 0)
		;
	return NULL;
}

static void script_end(struct fake *f)
{
	fake_greet(f);
	fake_expect_end(f);
}

/* A child that lives on also has the socket, but must not keep the session alive. */
static void test_close_ends_the_session_despite_children(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_end);
	kops *k = fake_open(f);
	pid_t child = start_child(sleep_until_killed, NULL);
	assert_true(child > 0);
	kops_close(k);
	fake_stop(f);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

/* ---- Forks from within calls ---- */

struct forking {
	kops *k;
	pid_t child;
	unsigned calls;
};

static void fork_here(kops_job *job, int status, void *user)
{
	struct forking *forking = user;
	(void)job, (void)status;
	forking->calls++; /* in either process */
	if (forking->calls == 1)
		forking->child = fork();
}

static void script_two_jobs(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	uint64_t first = fake_expect(f, FAKE_VERB(SUBMIT))->id;
	fake_receipt(f, first);
	uint64_t second = fake_expect(f, FAKE_VERB(SUBMIT))->id;
	fake_answer(f, fake_expect(f, FAKE_VERB(PING))->id, 0, ""); /* the children are gone */
	fake_receipt(f, second);
	fake_expect_end(f);
}

static const char *after_fork_in_callback(const struct forking *forking, int status)
{
	CHILD_CHECK(forking->calls == 1);
	CHILD_CHECK(status == KOPS_E_STATE);
	CHILD_CHECK(strstr(kops_error(forking->k), "which forked"));
	kops_close(forking->k);
	return NULL;
}

static void fork_in_callback(struct fake *f, bool loop)
{
	fake_start(f, script_two_jobs);
	kops *k = fake_open(f);
	struct forking forking = {.k = k};
	kops_buffer *a = fake_alloc(k, 64, KOPS_SHARED);
	kops_job *one = fake_transpose(k, fake_matrix(a, 0), fake_matrix(a, 32));
	kops_job *two = fake_transpose(k, fake_matrix(a, 0), fake_matrix(a, 32));
	assert_int_equal(kops_submit(one, fork_here, &forking), 0);
	int status = 0;
	while (loop && (status = kops_process(k)) == 0)
		usleep(1000);
	if (loop && forking.child != 0)
		assert_int_equal(status, 1);
	if (!loop)
		status = kops_wait(one, -1);
	if (forking.child == 0)
		end_child(after_fork_in_callback(&forking, status));
	wait_for(forking.child);
	assert_int_equal(kops_submit(two, NULL, NULL), 0);
	assert_int_equal(kops_ping(k), 0);
	assert_int_equal(kops_wait(two, -1), 0);
	kops_close(k);
	fake_stop(f);
}

/* The child returns from the callback into the middle of a wait, which must not continue there. */
static void test_fork_in_a_callback_of_a_wait(void **state)
{
	fork_in_callback(*state, false);
}

static void test_fork_in_a_callback_of_an_event_loop(void **state)
{
	fork_in_callback(*state, true);
}

static void script_vanish_twice_out(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	fake_expect(f, FAKE_VERB(SUBMIT));
	fake_expect(f, FAKE_VERB(SUBMIT));
	close(f->listener);
	f->listener = -1;
	fake_hang_up(f);
}

/* All jobs end at once. The first callback forks, and the second must run in the parent only. */
static void test_fork_in_the_callback_of_a_failure(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_vanish_twice_out);
	kops *k = fake_open(f);
	struct forking forking = {.k = k};
	kops_buffer *a = fake_alloc(k, 64, KOPS_SHARED);
	kops_job *one = fake_transpose(k, fake_matrix(a, 0), fake_matrix(a, 32));
	kops_job *two = fake_transpose(k, fake_matrix(a, 0), fake_matrix(a, 48));
	assert_int_equal(kops_submit(one, fork_here, &forking), 0);
	assert_int_equal(kops_submit(two, fork_here, &forking), 0);
	fake_stop(f);
	fake_set_timeout(k, 50);
	int status = 0;
	while ((status = kops_process(k)) >= 0 && forking.calls == 0)
		usleep(1000);
	if (forking.child == 0)
		end_child(after_fork_in_callback(&forking, status));
	wait_for(forking.child);
	assert_int_equal(forking.calls, 2);
	assert_int_equal(status, KOPS_E_CONNECT);
	kops_close(k);
}

/* ---- Forks beside calls ---- */

static void *wait_for_job(void *data)
{
	return kops_wait(data, -1) == 0 ? data : NULL;
}

static void script_slow_job(struct fake *f)
{
	struct pollfd p = {.fd = f->memfd, .events = POLLIN};
	fake_greet(f);
	f->memfd = -1;
	fake_lend(f);
	uint64_t id = fake_expect(f, FAKE_VERB(SUBMIT))->id;
	FAKE_CHECK(f, poll(&p, 1, FAKE_PATIENCE_MS) == 1); /* until the children are gone */
	fake_receipt(f, id);
	fake_expect_end(f);
}

static const char *ping_and_close(void *data)
{
	CHILD_CHECK(kops_ping(data) == KOPS_E_STATE);
	kops_close(data);
	return NULL;
}

/* A handle has no lock that a thread of the parent could hold for ever in the child. */
static void test_fork_while_a_thread_waits(void **state)
{
	struct fake *f = *state;
	int gone[2];
	pthread_t thread;
	void *done = NULL;
	assert_int_equal(pipe2(gone, O_CLOEXEC), 0);
	f->memfd = gone[0];
	fake_start(f, script_slow_job);
	kops *k = fake_open(f);
	kops_buffer *a = fake_alloc(k, 64, KOPS_SHARED);
	kops_job *job = fake_transpose(k, fake_matrix(a, 0), fake_matrix(a, 32));
	assert_int_equal(kops_submit(job, NULL, NULL), 0);
	assert_int_equal(pthread_create(&thread, NULL, wait_for_job, job), 0);
	usleep(20000);
	for (int i = 0; i < 5; i++)
		in_child(ping_and_close, k);
	assert_int_equal(write(gone[1], "x", 1), 1);
	pthread_join(thread, &done);
	assert_ptr_equal(done, job);
	kops_close(k);
	close(gone[0]);
	close(gone[1]);
	fake_stop(f);
}

/* ---- exec ---- */

static void script_spawner(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	fake_receipt(f, fake_expect(f, FAKE_VERB(SUBMIT))->id);
	fake_expect_end(f);
}

/* The new program sees no descriptor of the handle, and the parent computes on. */
static void test_vfork_and_exec(void **state)
{
	struct fake *f = *state;
	char command[] =
	    "for fd in /proc/self/fd/*; do readlink $fd; done | grep -E 'socket|memfd' && exit 1; exit 0";
	char *const argv[] = {(char[]){"sh"}, (char[]){"-c"}, command, NULL};
	fake_start(f, script_spawner);
	kops *k = fake_open(f);
	kops_buffer *a = fake_alloc(k, 64, KOPS_SHARED);
	kops_job *job = fake_transpose(k, fake_matrix(a, 0), fake_matrix(a, 32));
	pid_t child = vfork();
	if (child == 0) {
		execv("/bin/sh", argv);
		_exit(127);
	}
	wait_for(child);
	assert_non_null(kops_data(a));
	assert_int_equal(kops_run(job), 0);
	kops_close(k);
	fake_stop(f);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fake_setup, fake_teardown)
	const struct CMUnitTest tests[] = {
	    TEST(test_child_is_refused_and_parent_goes_on),
	    TEST(test_pids_tell_a_child_too),
	    TEST(test_children_may_inherit_memory),
	    TEST(test_grandchildren),
	    TEST(test_child_while_a_buffer_is_made),
	    TEST(test_child_with_a_handle_of_its_own),
	    TEST(test_close_ends_the_session_despite_children),
	    TEST(test_fork_in_a_callback_of_a_wait),
	    TEST(test_fork_in_a_callback_of_an_event_loop),
	    TEST(test_fork_in_the_callback_of_a_failure),
	    TEST(test_fork_while_a_thread_waits),
	    TEST(test_vfork_and_exec),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
