/* await.c: waiting for the daemon: polling, sleeping, and what event loops call instead. */
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>

#include "affinity.h"
#include "cpu_pause.h"
#include "libkops/base/base.h"
#include "libkops/session/await.h"
#include "libkops/session/session.h"
#include "libkops/wire/link.h"
#include "libkops/wire/ring.h"
#include "libkops/wire/wire.h"

#define PROCESS_MAX 64  /* datagrams read by one kops_process() */
#define LATE_MAX    256 /* most datagrams that a wait reads after its deadline */

/*
 * How a polling thread treats its CPU. A look of GIVEN_WAY_US or more gave another thread the CPU, and that
 * thread has real work: one that only polls yields sooner. So this thread moves to another CPU, up to MOVES_MAX
 * times, since the threads there may only poll.
 * If moving does not help, more threads work than there are CPUs. Then calls sleep at once for CROWDED_US, and
 * for CROWDED_TIMES as long if that happens again soon.
 */
#define GIVEN_WAY_US   50
#define MOVES_MAX      4
#define CROWDED_US     10000
#define CROWDED_US_MAX 100000
#define CROWDED_TIMES  4

/* With more jobs in flight than this, the device works on others while the caller wakes up. */
#define SPIN_JOBS_MAX 8

#define SPIN_LOOKS 64 /* looks at the ring for each look at the socket */

/* Returns false if jobs have ended. */
static bool may_sleep(kops *k)
{
	return client_ring_lets_sleep(k) || !client_session_take_ends(k);
}

/* Returns true as soon as a job has ended; false when it is time to look at the socket. */
static bool spin_on_ring(kops *k)
{
	for (int i = 0; i < SPIN_LOOKS && k->ring.memory && k->ring.runs > 0; i++) {
		if (client_session_take_ends(k))
			return true;
		cpu_pause();
	}
	return false;
}

static bool poll_once(kops *k, int64_t now_us, int64_t until_us)
{
	bool moved = false;
	if (k->link.state != LINK_DOWN && !client_link_has_socket(k))
		return true;
	struct pollfd p = {.fd = k->link.sock.number, .events = kops_events(k)};
	int64_t left_us = until_us > now_us ? until_us - now_us : 0;
	const struct timespec left = {.tv_sec = left_us / 1000000, .tv_nsec = left_us % 1000000 * 1000};
	k->link.sock_is_known = false;
	if (ppoll(&p, k->link.sock.number >= 0, until_us == CLIENT_NEVER ? NULL : &left, NULL) <= 0)
		return false;
	if (p.revents & POLLOUT)
		moved = client_wire_flush(k);
	if (p.revents & (POLLIN | POLLHUP | POLLERR))
		moved |= client_session_receive(k, false);
	return moved;
}

static int64_t min(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/*
 * Returns true if another thread ran since the last call. If none did, a virtual machine's host took the CPU,
 * and sleeping would help nobody here.
 */
static bool another_thread_ran(kops *k)
{
	struct rusage used;
	getrusage(RUSAGE_THREAD, &used);
	bool ran = used.ru_nivcsw != k->looks.switches;
	k->looks.switches = used.ru_nivcsw;
	return ran;
}

static bool slept_lately(const kops *k, int64_t now_us)
{
	return now_us - k->looks.sleep_until_us < k->looks.crowded_us;
}

/* Returns false if a recent move did not help. */
static bool changes_cpu(kops *k, int64_t now_us)
{
	if (now_us - k->looks.given_way_us >= CROWDED_US)
		k->looks.moves_left = MOVES_MAX;
	k->looks.given_way_us = now_us;
	if (slept_lately(k, now_us) || k->looks.moves_left == 0 || !affinity_leave(sched_getcpu()))
		return false;
	k->looks.moves_left--;
	another_thread_ran(k); /* resets the count, which includes the move */
	return true;
}

static void sleep_for_a_while(kops *k, int64_t now_us)
{
	bool again = slept_lately(k, now_us);
	k->looks.crowded_us = again ? min(k->looks.crowded_us * CROWDED_TIMES, CROWDED_US_MAX) : CROWDED_US;
	k->looks.sleep_until_us = now_us + k->looks.crowded_us;
}

/*
 * Polls for an answer without sleeping. Lets a thread that waits for this CPU, perhaps kopsd's own, run first.
 * If there is one, more threads want to run than there are CPUs.
 */
static bool spin(kops *k, int64_t now_us, int64_t until_us)
{
	while (now_us < until_us) {
		int64_t before_us = now_us;
		if (spin_on_ring(k) || client_session_receive(k, false))
			return true;
		sched_yield();
		now_us = client_now_us();
		if (now_us - before_us < GIVEN_WAY_US || !another_thread_ran(k))
			continue;
		k->link.sock_is_known = false;
		if (!changes_cpu(k, now_us)) {
			sleep_for_a_while(k, now_us);
			return false;
		}
		now_us = client_now_us();
	}
	return false;
}

/* When to stop polling and sleep. */
static int64_t looks_until_us(const kops *k, const struct waiter *waiter, int64_t now_us)
{
	int64_t until = now_us + (k->jobs.n_out > SPIN_JOBS_MAX ? 0 : k->spin_us);
	if (now_us < k->looks.sleep_until_us)
		return now_us;
	bool near = now_us >= waiter->look_from_us && now_us < waiter->look_until_us;
	return near && waiter->look_until_us > until ? waiter->look_until_us : until;
}

/* Advances the connection, waiting at most until the deadline. Returns false when nothing happened. */
static bool step(kops *k, const struct waiter *waiter, int64_t now_us, int64_t deadline_us)
{
	if (client_session_tick(k, now_us, deadline_us) || client_session_take_ends(k))
		return true;
	int64_t until = min(client_link_next_us(k), deadline_us);
	int64_t look_until = looks_until_us(k, waiter, now_us);
	if (k->link.state == LINK_BROKEN)
		return client_session_receive(k, false);
	if (look_until > now_us && k->link.state == LINK_UP && !k->wire.outbox) {
		if (spin(k, now_us, min(look_until, until)))
			return true;
		now_us = client_now_us();
	}
	if (now_us < waiter->look_from_us)
		until = min(until, waiter->look_from_us);
	if (!may_sleep(k))
		return true;
	/* A wait for nothing but a reply takes one system call instead of two. */
	bool moved = k->link.state == LINK_UP && !k->wire.outbox && k->buffers.requests == 0 &&
	                     !k->ring.awaited && until - now_us >= CLIENT_BLOCK_US
	                 ? client_session_receive(k, true)
	                 : poll_once(k, now_us, until);
	client_ring_woke_up(k);
	return moved;
}

int client_await(kops *k, const struct waiter *waiter, int64_t timeout_us)
{
	unsigned late = 0;
	int64_t now = client_now_us(), deadline;
	if (__builtin_add_overflow(now, timeout_us, &deadline))
		deadline = CLIENT_NEVER;
	while (!waiter->done) {
		bool moved = step(k, waiter, now, deadline);
		if (client_is_copy(k)) /* a callback forked */
			return client_may_use(k);
		if (waiter->done)
			break;
		now = client_now_us();
		if (now < deadline || (k->link.state != LINK_UP && now >= k->link.give_up_us))
			continue; /* if the link is down, the next step gives up and sets the reason */
		if (!moved || ++late > LATE_MAX)
			return client_fail(k, KOPS_E_TIMEOUT,
			                   "kopsd did not answer within %g s; check that it is running "
			                   "(systemctl status kopsd), or allow a longer timeout",
			                   k->timeout_ms / 1000.0);
	}
	if (waiter->status < 0)
		return client_fail(k, waiter->status, "%s", waiter->why);
	return 0;
}

/* ---- Calls ---- */

int client_ask(kops *k, struct call *call, int64_t until_us)
{
	int status = client_may_wait(k);
	if (status < 0)
		return status;
	call->waiter.done = false;
	call->waiter.look_from_us = call->waiter.look_until_us = 0;
	call->id = 0;
	k->session.call = call;
	client_link_want(k);
	if (client_can_send(k))
		status = client_call_send(k);
	if (status == 0)
		status = client_await(k, &call->waiter, until_us - client_now_us());
	k->session.call = NULL;
	return status;
}

int client_ping(kops *k, int64_t until_us)
{
	struct call call; /* not initialized, since that would also write the text of its waiter */
	call.verb = KOPS__V1__REQUEST__BODY_PING;
	call.before = 0;
	call.request = NULL;
	return client_ask(k, &call, until_us);
}

/* ---- Event loops ---- */

int kops_fd(kops *k)
{
	if (client_may_use(k) < 0)
		return -1;
	client_link_has_socket(k);
	k->link.watched = k->link.sock.number;
	return k->link.watched;
}

short kops_events(const kops *k)
{
	if (k->link.sock.number < 0 || client_is_copy(k))
		return 0;
	return k->wire.outbox && k->link.state != LINK_BROKEN ? POLLIN | POLLOUT : POLLIN;
}

static int poll_ms(int64_t now_us, int64_t until_us)
{
	if (until_us == CLIENT_NEVER)
		return -1;
	int64_t left = until_us - now_us;
	if (left <= 0)
		return 0;
	return left >= INT64_C(1000) * (INT_MAX - 1) ? INT_MAX : (int)((left + 999) / 1000);
}

static bool is_awaiting(const kops *k)
{
	return k->jobs.n_out > 0 || k->buffers.requests > 0;
}

/* The program may close this library's socket, which poll() and epoll do not report. */
#define LOOK_MS 1000

int kops_timeout(const kops *k)
{
	int64_t next = client_link_next_us(k);
	if (client_is_copy(k))
		return -1;
	if (!client_ring_lets_sleep(k))
		return 0;
	int ms = next == CLIENT_NEVER ? -1 : poll_ms(client_now_us(), next);
	return is_awaiting(k) && (ms < 0 || ms > LOOK_MS) ? LOOK_MS : ms;
}

int kops_process(kops *k)
{
	unsigned before = k->ended;
	int status = client_may_wait(k);
	if (status < 0)
		return status;
	k->session.lost_status = 0;
	client_session_tick(k, client_now_us(), 0);
	if (k->link.state != LINK_DOWN && !client_is_copy(k)) /* a callback may have forked */
		client_wire_flush(k);
	for (unsigned i = 0; i < PROCESS_MAX && k->link.state != LINK_DOWN && !client_is_copy(k); i++)
		if (!client_session_receive(k, false))
			break;
	status = client_may_use(k);
	if (status < 0)
		return status;
	may_sleep(k); /* last, since datagrams read before only said that jobs had ended by then */
	status = client_may_use(k);
	if (status < 0)
		return status;
	return k->session.lost_status < 0 ? k->session.lost_status : (int)(k->ended - before);
}
