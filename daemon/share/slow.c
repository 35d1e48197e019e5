#include "share/slow.h"

#include <inttypes.h>
#include <time.h>

#include "base/timers.h"

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

/* Releases users whose time is over. Returns when the next one's time ends; UINT64_MAX: none is held. */
static uint64_t release_some(struct slow *slow, uint64_t now)
{
	uint64_t next = UINT64_MAX;
	struct account *a;

	list_for_each (a, &slow->accounts->all, link) {
		if (!slow_is_held(a))
			continue;
		if (a->slow_until_ns <= now + LENIENT_NS)
			turns_release(slow->accounts->turns, &a->turns, TURNS_SLOW);
		else if (a->slow_until_ns - LENIENT_NS < next)
			next = a->slow_until_ns - LENIENT_NS;
	}
	return next;
}

static void on_timer(uv_timer_t *timer)
{
	uint64_t now = clock_ns(), next = release_some(timer->data, now);

	if (next != UINT64_MAX)
		timers_start(timer, on_timer, RELEASE_MS_MIN + (next - now) / 1000000, 0);
}

static void hold_user(struct slow *slow, struct account *a, uint64_t took_ns, uint64_t ns)
{
	turns_hold(&a->turns, TURNS_SLOW);
	timers_start(&slow->timer, on_timer, RELEASE_MS_MIN, 0);
	if (log_may(&slow->lines))
		log_warning("uid %u must wait for %.1f s: a system call on its socket took %.1f ms; too many "
		            "epoll instances watch it",
		            (unsigned)a->uid, (double)ns / 1e9, (double)took_ns / 1e6);
}

void slow_took(struct slow *slow, struct account *a, const struct slow_call *call, uint64_t now)
{
	uint64_t took = call->cpu_ns ? slow_cpu_ns() - call->cpu_ns : 0;

	a->suspected_until_ns = now + (now - call->began_ns) * HELD_TIMES;
	if (took < SLOW_NS || !turns_have_others(slow->accounts->turns, &a->turns, call->began_ns))
		return;
	a->slow_until_ns = (a->slow_until_ns > now ? a->slow_until_ns : now) + took * HELD_TIMES;
	if (a->slow_until_ns > now + LENIENT_NS)
		hold_user(slow, a, took, a->slow_until_ns - LENIENT_NS - now);
}

void slow_init(struct slow *slow, uv_loop_t *timers, struct accounts *accounts)
{
	slow->accounts = accounts;
	uv_timer_init(timers, &slow->timer);
	slow->timer.data = slow;
}
