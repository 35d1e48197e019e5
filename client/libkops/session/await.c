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
#define LATE_MAX    256 /* datagrams read for others when the time of a wait is up */

/*
 * A look that takes so long gave another thread the CPU, and that one works: who only looks gives it back
 * sooner. The threads of other CPUs may all only look, so some of these are tried. Where that does not help, it
 * is not looked again for a while, longer where that happens again soon: it will where more threads than there
 * are CPUs work.
 */
#define GIVEN_WAY_US   50
#define MOVES_MAX      4
#define CROWDED_US     10000
#define CROWDED_US_MAX 100000
#define CROWDED_TIMES  4

/* With more jobs out than this the device does others while the caller wakes up. */
#define SPIN_JOBS_MAX 8

#define SPIN_LOOKS 64 /* at the ring, for each at the socket */

/* False: jobs have ended. */
static bool may_sleep(kops *k)
{
	return client_ring_lets_sleep(k) || !client_session_take_ends(k);
}

/* True as soon as there is an end; false when it is worth a look at the socket. */
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

/* Since this was last asked. If not, a virtual machine's host took the CPU, and nobody here gains by our sleep.
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

/* False: it did lately, and it did not help. */
static bool changes_cpu(kops *k, int64_t now_us)
{
	if (now_us - k->looks.given_way_us >= CROWDED_US)
		k->looks.moves_left = MOVES_MAX;
	k->looks.given_way_us = now_us;
	if (slept_lately(k, now_us) || k->looks.moves_left == 0 || !affinity_leave(sched_getcpu()))
		return false;
	k->looks.moves_left--;
	another_thread_ran(k); /* a move counts as one */
	return true;
}

static void sleep_for_a_while(kops *k, int64_t now_us)
{
	bool again = slept_lately(k, now_us);
	k->looks.crowded_us = again ? min(k->looks.crowded_us * CROWDED_TIMES, CROWDED_US_MAX) : CROWDED_US;
	k->looks.sleep_until_us = now_us + k->looks.crowded_us;
}

/*
 * Looks for an answer without sleeping. A thread that waits for this CPU, perhaps kopsd's own, goes first.
 * Where there is one, there are more threads than CPUs.
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

/* When to stop looking and go to sleep. */
static int64_t looks_until_us(const kops *k, const struct waiter *waiter, int64_t now_us)
{
	int64_t until = now_us + (k->jobs.n_out > SPIN_JOBS_MAX ? 0 : k->spin_us);
	if (now_us < k->looks.sleep_until_us)
		return now_us;
	bool near = now_us >= waiter->look_from_us && now_us < waiter->look_until_us;
	return near && waiter->look_until_us > until ? waiter->look_until_us : until;
}

/* Moves the connection on, waiting at most until the deadline. False when nothing happened. */
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
	/* The short way, for one that only waits for a reply: one system call instead of two. */
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
		if (client_is_copy(k)) /* made by a callback */
			return client_may_use(k);
		if (waiter->done)
			break;
		now = client_now_us();
		if (now < deadline || (k->link.state != LINK_UP && now >= k->link.give_up_us))
			continue; /* in the second case the next step gives up, and knows why */
		if (!moved || ++late > LATE_MAX)
			return client_fail(
			    k, KOPS_E_TIMEOUT,
			    "kopsd did not answer within %g s; it may be stopped or busy (systemctl "
			    "status kopsd): allow a longer timeout",
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
	struct call call; /* an initializer would write its text, too */
	call.verb = KOPS__V1__REQUEST__BODY_PING;
	call.before = 0;
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

/* The program may close our socket, of which poll() and epoll say nothing. */
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
	if (k->link.state != LINK_DOWN && !client_is_copy(k)) /* a callback may have made one */
		client_wire_flush(k);
	for (unsigned i = 0; i < PROCESS_MAX && k->link.state != LINK_DOWN && !client_is_copy(k); i++)
		if (!client_session_receive(k, false))
			break;
	status = client_may_use(k);
	if (status < 0)
		return status;
	may_sleep(k); /* last, as a datagram of before said only that there was something then */
	status = client_may_use(k);
	if (status < 0)
		return status;
	return k->session.lost_status < 0 ? k->session.lost_status : (int)(k->ended - before);
}
