/* Tests that a wait sleeps, except when it has to poll and finds a CPU that no other thread needs. */
#include <dlfcn.h>
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <time.h>

#include "fake_daemon.h"
#include "libkops/base/base.h"
#include "libkops/session/await.h"
#include "libkops/session/session.h"
#include "libkops/wire/wire.h"

#define SLEEPS_MAX 16

static struct {
	int64_t begin_us, asked_us, end_us;
} sleeps[SLEEPS_MAX];
static unsigned n_sleeps;

/* libkops's calls also come here. */
int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask)
{
	static int (*real)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *);
	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "ppoll");
	int64_t begin_us = client_now_us();
	int64_t asked_us = timeout ? timeout->tv_sec * 1000000 + timeout->tv_nsec / 1000 : INT64_MAX;
	int found = real(fds, n, timeout, mask);
	if (n_sleeps < SLEEPS_MAX)
		sleeps[n_sleeps++] = (typeof(sleeps[0])){begin_us, asked_us, client_now_us()};
	return found;
}

/*
 * How long other threads have the CPU after a yield by the test's thread, or a virtual machine's host has it.
 */
static _Thread_local long yield_ns, host_ns, switches;
static unsigned yields; /* so far; atomic */

int sched_yield(void)
{
	__atomic_add_fetch(&yields, 1, __ATOMIC_RELEASE);
	const struct timespec others = {.tv_nsec = yield_ns + host_ns};
	switches += yield_ns > 0;
	if (others.tv_nsec > 0)
		nanosleep(&others, NULL);
	return 0;
}

int getrusage(__rusage_who_t who, struct rusage *ret)
{
	(void)who;
	*ret = (struct rusage){.ru_nivcsw = switches};
	return 0;
}

/* The number of CPUs that libkops believes it may use, and its moves away from its CPU. */
static unsigned cpus = 1, moves;
static cpu_set_t allowed;

static void fill(cpu_set_t *set)
{
	CPU_ZERO(set);
	for (unsigned i = 0; i < cpus; i++)
		CPU_SET(i, set);
}

int sched_getcpu(void)
{
	return 0;
}

int sched_getaffinity(pid_t tid, size_t size, cpu_set_t *ret)
{
	assert_int_equal(tid, 0);
	assert_true(size >= sizeof *ret);
	fill(ret);
	return 0;
}

int sched_setaffinity(pid_t tid, size_t size, const cpu_set_t *set)
{
	assert_int_equal(tid, 0);
	assert_true(size >= sizeof *set);
	moves += !CPU_ISSET(0, set);
	switches += !CPU_ISSET(0, set);
	allowed = *set;
	return 0;
}

/* How far the clock is ahead. */
static int64_t ahead_s;

int clock_gettime(clockid_t clock, struct timespec *ret)
{
	static int (*real)(clockid_t, struct timespec *);
	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
	int rc = real(clock, ret);
	ret->tv_sec += __atomic_load_n(&ahead_s, __ATOMIC_ACQUIRE);
	return rc;
}

static void let_pass(int64_t seconds)
{
	__atomic_add_fetch(&ahead_s, seconds, __ATOMIC_RELEASE);
}

static void script(struct fake *f)
{
	fake_greet(f);
	fake_expect_end(f);
}

static void test_it_looks_out_when_told(void **state)
{
	struct fake *f = *state;
	fake_start(f, script);
	kops *k = fake_open(f);
	int64_t now = client_now_us();
	struct waiter waiter = {.look_from_us = now + 200000, .look_until_us = now + 300000};
	n_sleeps = 0;
	assert_int_equal(client_await(k, &waiter, 400000), KOPS_E_TIMEOUT);
	assert_true(client_now_us() >= now + 400000);
	/* Unless another thread took the CPU. */
	assert_true(n_sleeps >= 1);
	for (unsigned i = 0; i < n_sleeps && k->looks.sleep_until_us == 0; i++)
		assert_false(sleeps[i].begin_us >= waiter.look_from_us &&
		             sleeps[i].begin_us < waiter.look_until_us);
	assert_true(sleeps[0].begin_us < waiter.look_from_us && sleeps[0].end_us >= waiter.look_from_us);
	kops_close(k);
	fake_stop(f);
}

/* It sleeps for the rest of the time after polling, not for all of it again. */
static void test_it_looks_and_then_sleeps(void **state)
{
	struct fake *f = *state;
	fake_start(f, script);
	kops *k = fake_open(f);
	struct waiter waiter = {0};
	int64_t now = client_now_us();
	k->spin_us = 20000;
	waiter.look_from_us = now + 40000;
	waiter.look_until_us = now + 45000;
	n_sleeps = 0;
	assert_int_equal(client_await(k, &waiter, 50000), KOPS_E_TIMEOUT);
	assert_true(n_sleeps >= 1);
	assert_true(k->looks.sleep_until_us > 0 || sleeps[0].begin_us >= now + 20000);
	assert_true(sleeps[0].asked_us <= 40000);
	kops_close(k);
	fake_stop(f);
}

static void test_it_sleeps_at_once_with_many_jobs_out(void **state)
{
	struct fake *f = *state;
	fake_start(f, script);
	kops *k = fake_open(f);
	struct waiter waiter = {0};
	k->spin_us = 2000000;
	k->jobs.n_out = 9;
	n_sleeps = 0;
	assert_int_equal(client_await(k, &waiter, 50000), KOPS_E_TIMEOUT);
	assert_true(n_sleeps >= 1 && sleeps[0].asked_us > 0);
	assert_int_equal(k->looks.sleep_until_us, 0); /* it did not poll */
	k->jobs.n_out = 8;
	n_sleeps = 0;
	assert_int_equal(client_await(k, &waiter, 50000), KOPS_E_TIMEOUT);
	assert_true(n_sleeps == 0 || sleeps[0].asked_us == 0 || k->looks.sleep_until_us > 0);
	k->jobs.n_out = 0;
	kops_close(k);
	fake_stop(f);
}

static void test_it_sleeps_while_others_want_the_cpu(void **state)
{
	struct fake *f = *state;
	fake_start(f, script);
	kops *k = fake_open(f);
	struct waiter waiter = {0};
	int64_t now = client_now_us();
	k->spin_us = 2000000;
	yield_ns = 1000000;
	n_sleeps = 0;
	assert_int_equal(client_await(k, &waiter, 200000), KOPS_E_TIMEOUT);
	yield_ns = 0;
	assert_true(k->looks.sleep_until_us > now);
	assert_true(n_sleeps >= 1 && sleeps[0].begin_us < now + 200000);
	kops_close(k);
	fake_stop(f);
}

/* Threads that only poll give a CPU back sooner. */
static void test_it_tries_other_cpus_before_it_sleeps(void **state)
{
	struct fake *f = *state;
	fake_start(f, script);
	kops *k = fake_open(f);
	struct waiter waiter = {0};
	cpu_set_t all;
	cpus = 16;
	fill(&all);
	moves = 0;
	k->spin_us = 2000000;
	yield_ns = 1000000;
	n_sleeps = 0;
	assert_int_equal(client_await(k, &waiter, 200000), KOPS_E_TIMEOUT);
	unsigned before_it_slept = moves;
	assert_true(before_it_slept >= 1 && before_it_slept < 16);
	assert_true(k->looks.sleep_until_us > 0 && n_sleeps >= 1);
	assert_true(CPU_EQUAL(&allowed, &all));
	k->looks.sleep_until_us = client_now_us(); /* it has just slept */
	k->looks.crowded_us = 2000000;
	assert_int_equal(client_await(k, &waiter, 10000), KOPS_E_TIMEOUT);
	assert_int_equal(moves, before_it_slept);
	k->looks.sleep_until_us = k->looks.crowded_us = 0;
	yield_ns = 0;
	assert_int_equal(client_await(k, &waiter, 50000), KOPS_E_TIMEOUT);
	yield_ns = 1000000; /* after a time in which it kept its CPU */
	assert_int_equal(client_await(k, &waiter, 10000), KOPS_E_TIMEOUT);
	yield_ns = 0;
	cpus = 1;
	assert_true(moves > before_it_slept);
	kops_close(k);
	fake_stop(f);
}

static void test_it_looks_on_when_the_host_took_the_cpu(void **state)
{
	struct fake *f = *state;
	fake_start(f, script);
	kops *k = fake_open(f);
	struct waiter waiter = {0};
	k->spin_us = 2000000;
	k->looks.switches = switches;
	host_ns = 1000000;
	n_sleeps = 0;
	assert_int_equal(client_await(k, &waiter, 50000), KOPS_E_TIMEOUT);
	host_ns = 0;
	assert_int_equal(k->looks.sleep_until_us, 0);
	assert_true(n_sleeps == 0 || sleeps[0].asked_us == 0);
	kops_close(k);
	fake_stop(f);
}

static unsigned count_yields(void)
{
	return __atomic_load_n(&yields, __ATOMIC_ACQUIRE);
}

/* Answers once the client polls: only then does it yield. */
static void script_answer_to_one_who_polls(struct fake *f)
{
	unsigned before = count_yields();
	fake_greet(f);
	uint64_t id = fake_expect(f, FAKE_VERB(PING))->id;
	for (unsigned ms = 0; ms < FAKE_PATIENCE_MS && count_yields() == before; ms++)
		usleep(1000);
	FAKE_CHECK(f, count_yields() != before);
	fake_answer(f, id, 0, "");
	fake_expect_end(f);
}

static void test_an_answer_by_the_socket_ends_the_polling(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_answer_to_one_who_polls);
	kops *k = fake_open(f);
	k->spin_us = 20000000;
	k->looks.switches = switches; /* nobody else wants the CPU */
	fake_set_timeout(k, 30000);
	int64_t began_us = client_now_us();
	assert_int_equal(kops_ping(k), 0);
	assert_true(client_now_us() - began_us < k->spin_us / 2);
	kops_close(k);
	fake_stop(f);
}

/* Polls while others need the CPU, having slept for before_us. Returns for how long it sleeps now. */
static int64_t sleeps_for(kops *k, int64_t before_us, int64_t until_us)
{
	struct waiter waiter = {0};
	k->looks.crowded_us = before_us;
	k->looks.sleep_until_us = until_us;
	yield_ns = 1000000;
	assert_int_equal(client_await(k, &waiter, 2000), KOPS_E_TIMEOUT);
	yield_ns = 0;
	return k->looks.crowded_us;
}

/* The same, just after a sleep. */
static int64_t sleeps_again_for(kops *k, int64_t before_us)
{
	int64_t slept_us, for_us;
	do {
		slept_us = client_now_us();
		for_us = sleeps_for(k, before_us, slept_us);
	} while (client_now_us() - slept_us >= before_us); /* this thread lost its CPU for before_us */
	return for_us;
}

static void test_it_sleeps_for_longer_where_others_go_on(void **state)
{
	struct fake *f = *state;
	fake_start(f, script);
	kops *k = fake_open(f);
	k->spin_us = 2000000;
	int64_t first_us = sleeps_for(k, 0, 0);
	assert_true(first_us > 0);
	int64_t again_us = sleeps_again_for(k, first_us);
	assert_true(again_us > first_us);
	int64_t most_us = sleeps_again_for(k, again_us);
	assert_true(most_us > again_us);
	assert_int_equal(sleeps_again_for(k, most_us), most_us);
	assert_int_equal(sleeps_for(k, most_us, client_now_us() - 2 * most_us), first_us);
	kops_close(k);
	fake_stop(f);
}

static void test_it_sleeps_else(void **state)
{
	struct fake *f = *state;
	fake_start(f, script);
	kops *k = fake_open(f);
	struct waiter waiter = {0};
	n_sleeps = 0;
	assert_int_equal(client_await(k, &waiter, 20000), KOPS_E_TIMEOUT);
	assert_int_equal(n_sleeps, 1);
	kops_close(k);
	fake_stop(f);
}

/* A page of a list takes two thirds of the time, and the next one as long. */
static void script_slow_pages(struct fake *f)
{
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	Kops__V1__Users page = KOPS__V1__USERS__INIT;
	f->lists = true;
	fake_greet(f);
	reply.id = fake_expect(f, FAKE_VERB(LIST_USERS))->id;
	reply.body_case = KOPS__V1__REPLY__BODY_USERS, reply.users = &page;
	page.next = 5;
	let_pass(200);
	fake_send(f, &reply, -1);
	fake_expect(f, FAKE_VERB(LIST_USERS));
	let_pass(200);
	FAKE_CHECK(f, fake_wait(f, 1)); /* until the call has returned */
	fake_expect_end(f);
}

static void test_a_call_of_several_questions_has_one_timeout(void **state)
{
	struct fake *f = *state;
	kops_list *list = NULL;
	fake_start(f, script_slow_pages);
	kops *k = fake_open(f);
	fake_set_timeout(k, 300000);
	assert_int_equal(kops_list_users(k, &list), KOPS_E_TIMEOUT);
	assert_non_null(strstr(kops_error(k), "did not answer within 300 s"));
	assert_null(list);
	fake_reach(f, 1);
	kops_close(k);
	fake_stop(f);
}

/* Of datagrams that were there before the time was over, a wait reads at most LATE. */
enum { LATE = 256, MANY = 300 };

/* Sends answers to requests that nobody waits for. */
static void script_crowd(struct fake *f)
{
	int room = MANY * 1024;
	fake_greet(f);
	setsockopt(f->sock, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
	for (unsigned i = 0; i < MANY; i++)
		fake_answer(f, 1u << CLIENT_KIND_BITS | CLIENT_SILENT, 0, "");
	fake_reach(f, 1);
	fake_expect_end(f);
}

static void test_a_crowd_does_not_hold_a_wait_for_ever(void **state)
{
	struct fake *f = *state;
	struct waiter waiter = {0};
	fake_start(f, script_crowd);
	kops *k = fake_open(f);
	assert_true(fake_wait(f, 1));
	n_sleeps = 0;
	assert_int_equal(client_await(k, &waiter, 0), KOPS_E_TIMEOUT);
	unsigned left = 0;
	while (client_session_receive(k, false))
		left++;
	assert_int_equal(left, MANY - LATE - 1);
	kops_close(k);
	fake_stop(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_it_looks_out_when_told, fake_setup, fake_teardown),
	    cmocka_unit_test_setup_teardown(test_it_looks_and_then_sleeps, fake_setup, fake_teardown),
	    cmocka_unit_test_setup_teardown(test_it_sleeps_at_once_with_many_jobs_out, fake_setup,
	                                    fake_teardown),
	    cmocka_unit_test_setup_teardown(test_it_sleeps_while_others_want_the_cpu, fake_setup,
	                                    fake_teardown),
	    cmocka_unit_test_setup_teardown(test_it_tries_other_cpus_before_it_sleeps, fake_setup,
	                                    fake_teardown),
	    cmocka_unit_test_setup_teardown(test_it_looks_on_when_the_host_took_the_cpu, fake_setup,
	                                    fake_teardown),
	    cmocka_unit_test_setup_teardown(test_an_answer_by_the_socket_ends_the_polling, fake_setup,
	                                    fake_teardown),
	    cmocka_unit_test_setup_teardown(test_it_sleeps_for_longer_where_others_go_on, fake_setup,
	                                    fake_teardown),
	    cmocka_unit_test_setup_teardown(test_it_sleeps_else, fake_setup, fake_teardown),
	    cmocka_unit_test_setup_teardown(test_a_call_of_several_questions_has_one_timeout, fake_setup,
	                                    fake_teardown),
	    cmocka_unit_test_setup_teardown(test_a_crowd_does_not_hold_a_wait_for_ever, fake_setup,
	                                    fake_teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
