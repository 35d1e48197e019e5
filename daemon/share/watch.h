/*
 * watch.h: watches descriptors by libuv, in ways that cannot abort.
 *
 * Clients could make libuv abort the process by two calls (in 1.44.2, and up to 1.51):
 *
 * - A loop has a table with an entry for each descriptor number. uv_poll_start() enlarges it if the number
 *   needs that, and aborts if realloc() fails (maybe_resize() in src/unix/core.c). The table never shrinks. So
 *   watch_make_room() makes it as large as it can get, at the start.
 * - Before it sleeps, the loop hands what uv_poll_start() noted to epoll_ctl(). It aborts if EPOLL_CTL_ADD
 *   fails, except with EEXIST: then it modifies the entry (uv__io_poll() in src/unix/linux-core.c). Adding
 *   needs kernel memory and counts towards fs.epoll.max_user_watches; modifying needs neither. So watch_start()
 *   adds the descriptor itself.
 */
#ifndef KOPS_WATCH_H
#define KOPS_WATCH_H

#include <uv.h>

/*
 * Makes room in the loop's table for each descriptor number that this process may have (RLIMIT_NOFILE), 8 bytes
 * each. 0 or UV_*. libuv aborts if out of memory, so call it at the start. What it uses meanwhile is freed when
 * the loop runs.
 */
int watch_make_room(uv_loop_t *loop);

/* Like uv_poll_start(), but returns 0 or UV_*. If the descriptor cannot be watched, it is as after
 * uv_poll_stop(). */
int watch_start(uv_poll_t *poll, int events, uv_poll_cb fn);

#endif
