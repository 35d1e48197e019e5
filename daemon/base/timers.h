/*
 * timers.h: the daemon's timers, on a loop of their own within the main one. With a timer, a loop of libuv
 * sleeps with a timeout. The kernel then sets and cancels a timer at each sleep, which costs a short request a
 * microsecond. These timers share one descriptor (timerfd), which is set only when the next timer changes. Loop
 * thread only.
 */
#ifndef KOPS_TIMERS_H
#define KOPS_TIMERS_H

#include <stdint.h>
#include <uv.h>

struct timers {
	uv_loop_t loop; /* uv_timer_init() takes this one */
	uv_prepare_t prepare;
	uv_poll_t poll;
	int fd;
	uint64_t set_ms; /* in the loop's time; UINT64_MAX: the descriptor is not set */
};

/* Initializes timers in the outer loop, and adds handles to it. 0, or an error of libuv. */
int timers_init(struct timers *timers, uv_loop_t *outer);

/* Like uv_timer_start(), but counts from now: the inner loop's time is that of its last timer. */
void timers_start(uv_timer_t *timer, uv_timer_cb fn, uint64_t timeout_ms, uint64_t repeat_ms);

/* Closes the handles in the outer loop. All timers must be closed or closing. */
void timers_close(struct timers *timers);

#endif
