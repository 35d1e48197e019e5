/*
 * slow.h: holds users whose sockets are slow. Sending or receiving a datagram wakes all epoll sets that watch
 * the client's end, within kopsd's call. With 100,000 epoll entries, which a client makes in 0.3 s, a call
 * takes 30 ms. Such calls may take 1 % of the loop's time; beyond that their user waits, not others.
 *
 * CPU time counts, because a call may also be long if the loop's thread lost its CPU. Reading the CPU clock
 * costs time too. So kopsd reads it only for a user who had a long call, for a hundred times as long as that
 * call took. So evasion still costs at most 1 % of the loop's time.
 *
 * A user alone delays nobody, and is never held. Its CPU time may include what the host of a virtual machine
 * took.
 *
 * Loop thread only.
 */
#ifndef KOPS_SLOW_H
#define KOPS_SLOW_H

#include <uv.h>

#include "base/clock.h"
#include "log.h"
#include "share/account.h"

#define SLOW_NS 200000u

struct slow {
	struct accounts *accounts;
	uv_timer_t timer; /* until the next held user is released */
	struct log_limit lines;
};

struct slow_call {
	uint64_t began_ns, cpu_ns; /* cpu_ns is 0 if the user is not suspected */
};

void slow_init(struct slow *slow, uv_loop_t *timers, struct accounts *accounts);

uint64_t slow_cpu_ns(void);
/* Handles a call that took SLOW_NS or more. */
void slow_took(struct slow *slow, struct account *account, const struct slow_call *call, uint64_t now);

/* Call these before and after a call on a socket of this user. */
static inline struct slow_call slow_begin(const struct account *a, uint64_t now)
{
	return (struct slow_call){now, now < a->suspected_until_ns ? slow_cpu_ns() : 0};
}

static inline void slow_end(struct slow *slow, struct account *a, const struct slow_call *call)
{
	uint64_t now = clock_ns();

	if (now - call->began_ns >= SLOW_NS)
		slow_took(slow, a, call, now);
}

/* Returns true if kopsd must neither read from this user nor send to it. */
static inline bool slow_is_held(const struct account *a)
{
	return a->turns.held & TURNS_SLOW;
}

#endif
