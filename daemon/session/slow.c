/*
 * slow.c: users whose sockets are slow. A datagram that is sent or taken wakes all that watch the client's end
 * of the socket, within our call: 100,000 places in epoll sets, which a client makes in 0.3 s, take 30 ms each
 * time. No other user should wait for that, so the user has to: a hundredth of the loop's time is what such
 * calls can take. CPU time counts, since a call may also be long because the loop's thread lost its CPU; as
 * asking for it costs, that is done for a user who had a call that seemed long. A user alone delays nobody, and
 * may be one whose CPU time has what a virtual machine's host took of it: it is never held.
 */
#include <inttypes.h>

#include "clock.h"
#include "session/session.h"

#define SUSPECTED_NS   60000000000u
#define HELD_TIMES     100u
#define FORGIVEN_NS    20000000u /* at once */
#define LENIENT_NS     ((uint64_t)FORGIVEN_NS * HELD_TIMES)
#define RELEASE_MS_MIN 10u

uint64_t slow_cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- Held, and released ---- */

/* Those whose time is over. Returns when the next one's is; UINT64_MAX: there is none. */
static uint64_t release_some(struct sessions *all, uint64_t now)
{
	uint64_t next = UINT64_MAX;

	for (struct account *a = all->engine->accounts.first; a; a = a->next) {
		if (!slow_is_held(a))
			continue;
		if (a->slow_until_ns <= now + LENIENT_NS)
			turns_release(&all->turns, &a->turns, TURNS_SLOW);
		else if (a->slow_until_ns - LENIENT_NS < next)
			next = a->slow_until_ns - LENIENT_NS;
	}
	return next;
}

static void on_timer(uv_timer_t *timer)
{
	uint64_t now = clock_ns(), next = release_some(timer->data, now);

	if (next != UINT64_MAX)
		uv_timer_start(timer, on_timer, RELEASE_MS_MIN + (next - now) / 1000000, 0);
}

static void hold(struct sessions *all, struct account *a, uint64_t took_ns, uint64_t ns)
{
	turns_hold(&all->turns, &a->turns, TURNS_SLOW);
	uv_timer_start(&all->slow_timer, on_timer, RELEASE_MS_MIN, 0);
	if (log_may(&all->slow))
		log_warning(
		    "uid %u has to wait for %.1f s: a call on a socket of it took the kernel %.1f ms; too "
		    "many places watch it (epoll)",
		    (unsigned)a->uid, (double)ns / 1e9, (double)took_ns / 1e6);
}

void slow_took(struct sessions *all, struct account *a, const struct slow_call *call, uint64_t now)
{
	uint64_t took = call->cpu_ns ? slow_cpu_ns() - call->cpu_ns : 0;

	a->suspected_until_ns = now + SUSPECTED_NS;
	if (took < SLOW_NS || !turns_are_shared(&all->turns, call->began_ns))
		return;
	a->slow_until_ns = (a->slow_until_ns > now ? a->slow_until_ns : now) + took * HELD_TIMES;
	if (a->slow_until_ns > now + LENIENT_NS)
		hold(all, a, took, a->slow_until_ns - LENIENT_NS - now);
}

void slow_init(struct sessions *all)
{
	uv_timer_init(all->engine->loop, &all->slow_timer);
	all->slow_timer.data = all;
	uv_unref((uv_handle_t *)&all->slow_timer);
}
