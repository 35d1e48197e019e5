/*
 * slow.h: users whose sockets are slow. A datagram that is sent or taken wakes all that watch the client's end
 * of the socket, within our call: 100,000 places in epoll sets, which a client makes in 0.3 s, take 30 ms each
 * time. No other user should wait for that, so the user has to: a hundredth of the loop's time is what such
 * calls can take. CPU time counts, since a call may also be long because the loop's thread lost its CPU; as
 * asking for it costs, that is done for a user who had a call that seemed long, for a hundred times as long as
 * it took: so who escapes takes no more of the loop's time than a hundredth either. A user alone delays nobody,
 * and may be one whose CPU time has what a virtual machine's host took of it: it is never held.
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
	uv_timer_t timer; /* of users that are held */
	struct log_limit lines;
};

struct slow_call {
	uint64_t began_ns, cpu_ns; /* cpu_ns: 0: the user is not suspected */
};

void slow_init(struct slow *slow, uv_loop_t *timers, struct accounts *accounts);

uint64_t slow_cpu_ns(void);
/* That took so long. */
void slow_took(struct slow *slow, struct account *account, const struct slow_call *call, uint64_t now);

/* Before and after a call on a socket of this user's. */
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

/* Nothing is to be read of this user or sent to it. */
static inline bool slow_is_held(const struct account *a)
{
	return a->turns.held & TURNS_SLOW;
}

#endif
