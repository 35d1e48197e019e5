/*
 * timers.h: the daemon's timers, on a loop of their own within the main one. With a timer of its own a loop of
 * libuv sleeps with a timeout, for which the kernel sets and cancels a timer at each sleep, a microsecond of
 * each short request. These have one descriptor for all of them (timerfd), which is set when the next one
 * changes. Loop thread only.
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
	uint64_t set_ms; /* by the loop's time; UINT64_MAX: the descriptor is not set */
};

/* Within the outer loop, whose handles this adds to. 0, or an error of libuv's. */
int timers_init(struct timers *timers, uv_loop_t *outer);

/* As uv_timer_start(), from now on: the loop's own time is that of the last timer. */
void timers_start(uv_timer_t *timer, uv_timer_cb fn, uint64_t timeout_ms, uint64_t repeat_ms);

/* All timers are closed, or are being closed, and so are the outer loop's handles. */
void timers_close(struct timers *timers);

#endif
