/*
 * Tests channels to a kopsd that answers or not, with a simulated clock: how long kopsd is left alone, and what
 * happens to calls that are left by longjmp() or with their thread.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "channel.h"

#define SECOND   INT64_C(1000000000)
#define CHANNELS 8

/* ---- Replacements of libkops's calls (CMakeLists.txt) and of the clock ---- */

static int64_t now_ns = SECOND;
static int open_status, ping_status;
static int opened, closed, pings;
static jmp_buf *leave_ping;

int64_t routine_now_ns(void)
{
	return now_ns;
}

int fake_open_start(kops **ret, const kops_options *options, char *why, size_t why_size);
void fake_close(kops *k);
int fake_ping(kops *k);
int fake_wait(kops_job *job, int timeout_ms);

int fake_open_start(kops **ret, const kops_options *options, char *why, size_t why_size)
{
	(void)options, (void)why, (void)why_size;
	if (open_status < 0) {
		pings++;
		return open_status;
	}
	*ret = malloc(1);
	opened++;
	return *ret ? 0 : KOPS_E_NOMEM;
}

void fake_close(kops *k)
{
	closed += k != NULL;
	free(k);
}

int fake_ping(kops *k)
{
	(void)k;
	pings++;
	if (leave_ping)
		longjmp(*leave_ping, 1);
	if (ping_status < 0)
		now_ns += 2 * SECOND;
	return ping_status;
}

int fake_wait(kops_job *job, int timeout_ms)
{
	(void)job, (void)timeout_ms;
	return ping_status;
}

/* ---- Leaving kopsd alone ---- */

/* Asks for a channel, as calls of the library do. */
static bool try(void)
{
	struct hold hold = {0};
	enum outcome why = OUTCOME_KOPSD;
	struct channel *channel = channel_take(&hold, false, &why);
	if (channel)
		channel_give(channel);
	else
		assert_int_equal(why, OUTCOME_AWAY);
	return channel != NULL;
}

/* Asks every quarter of a second until kopsd is looked for again. Returns how many seconds that took. */
static int64_t seconds_alone(void)
{
	int before = pings;
	int64_t from = now_ns;
	while (pings == before) {
		now_ns += SECOND / 4;
		try();
	}
	return (now_ns - from) / SECOND;
}

/* Each look takes 2 s, so the pauses grow. */
static void test_the_longer_it_is_silent_the_longer_it_is_left_alone(void **state)
{
	static const int64_t pauses[] = {5, 10, 20, 40, 80, 160, 320, 320};
	(void)state;
	ping_status = KOPS_E_TIMEOUT;
	assert_false(try());
	for (unsigned i = 0; i < sizeof pauses / sizeof *pauses; i++)
		assert_in_range(seconds_alone(), pauses[i] - 1, pauses[i] + 3); /* includes the next look */
	ping_status = 0;
	now_ns += 320 * SECOND;
	assert_true(try());
	assert_int_equal(opened, closed + 1);
}

static void fail_once(struct channel *channel)
{
	ping_status = KOPS_E_TIMEOUT;
	assert_int_equal(channel_wait(channel, NULL, 1), KOPS_E_TIMEOUT);
	ping_status = 0;
}

/* An answer makes the pauses short again. */
static void test_an_answer_ends_it(void **state)
{
	struct hold hold = {0};
	enum outcome why;
	(void)state;
	struct channel *channel = channel_take(&hold, false, &why);
	assert_non_null(channel);
	now_ns += SECOND;
	fail_once(channel);
	channel_give(channel);
	assert_in_range(seconds_alone(), 4, 6);
	assert_true(try());
}

/* If nothing listens, a look takes no time. */
static void test_who_is_gone_is_soon_found_again(void **state)
{
	struct hold hold = {0};
	enum outcome why;
	(void)state;
	struct channel *channel = channel_take(&hold, false, &why);
	assert_non_null(channel);
	fail_once(channel);
	channel_give(channel);
	open_status = KOPS_E_CONNECT;
	for (int i = 0; i < 5; i++)
		assert_in_range(seconds_alone(), 0, 6);
	open_status = 0;
	now_ns += 6 * SECOND;
	assert_true(try());
}

/* Eight threads that wait at once are one failure. Here they are nested calls, each deeper in the stack. */
static void test_failures_at_once_are_one(void **state)
{
	struct hold holds[CHANNELS] = {0};
	struct channel *all[CHANNELS];
	enum outcome why;
	(void)state;
	for (int i = 0; i < CHANNELS; i++)
		assert_non_null(all[i] = channel_take(&holds[CHANNELS - 1 - i], false, &why));
	for (int i = 0; i < CHANNELS; i++) {
		now_ns++;
		fail_once(all[i]);
	}
	for (int i = 0; i < CHANNELS; i++)
		channel_give(all[i]);
	assert_in_range(seconds_alone(), 4, 6);
}

/* ---- Calls that are gone ---- */

/* Calls itself to be `depth` frames deeper in the stack. */
static __attribute__((noinline)) int leave(int depth)
{
	volatile char room[256] = {0};
	struct hold hold = {0};
	enum outcome why;
	if (depth > 0)
		return leave(depth - 1) + room[depth];
	struct channel *channel = channel_take(&hold, false, &why);
	if (!channel)
		return 0;
	longjmp(*leave_ping, 1);
}

static void test_left_calls_lose_no_channel(void **state)
{
	(void)state;
	assert_true(try());
	for (volatile int i = 0; i < 10 * CHANNELS; i++) {
		jmp_buf here;
		leave_ping = &here;
		if (setjmp(here) == 0) {
			leave(i % 7);
			fail_msg("no channel in round %d", i);
		}
	}
	leave_ping = NULL;
	assert_true(try());
	assert_in_range(opened - closed, 1, CHANNELS);
}

/* A signal handler's product within a call must not disturb that call. */
static void test_a_call_within_a_call(void **state)
{
	struct hold hold = {0};
	enum outcome why;
	(void)state;
	struct channel *channel = channel_take(&hold, false, &why);
	assert_non_null(channel);
	for (int i = 0; i < 3; i++)
		assert_true(try());
	assert_true(channel_is_open(channel));
	channel_give(channel);
}

static void *leave_thread(void *unused)
{
	struct hold hold = {0};
	enum outcome why;
	(void)unused;
	assert_non_null(channel_take(&hold, false, &why));
	pthread_exit(NULL);
}

static void test_the_end_of_a_thread_gives_its_channel_back(void **state)
{
	(void)state;
	for (int i = 0; i < 3 * CHANNELS; i++) {
		pthread_t thread;
		assert_int_equal(pthread_create(&thread, NULL, leave_thread, NULL), 0);
		pthread_join(thread, NULL);
	}
	assert_true(try());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_the_longer_it_is_silent_the_longer_it_is_left_alone),
	    cmocka_unit_test(test_an_answer_ends_it),
	    cmocka_unit_test(test_who_is_gone_is_soon_found_again),
	    cmocka_unit_test(test_failures_at_once_are_one),
	    cmocka_unit_test(test_left_calls_lose_no_channel),
	    cmocka_unit_test(test_a_call_within_a_call),
	    cmocka_unit_test(test_the_end_of_a_thread_gives_its_channel_back),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
