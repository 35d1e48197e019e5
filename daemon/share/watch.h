/*
 * watch.h: descriptors that libuv watches, where that can fail.
 *
 * libuv ends the process in two places that clients could make it reach. (Read in 1.44.2, and the same up
 * to 1.51.)
 *
 * - A loop has a table with a place for each descriptor number. uv_poll_start() makes it larger where the
 * number needs that, and aborts where realloc() fails (maybe_resize() in src/unix/core.c). The table never
 * shrinks. So watch_make_room() makes it as large as it can get, at the start.
 * - What uv_poll_start() notes, the loop hands to epoll_ctl() before it sleeps. It aborts where EPOLL_CTL_ADD
 *   fails, except with EEXIST: then it modifies what is there (uv__io_poll() in src/unix/linux-core.c). Adding
 *   needs memory of the kernel, and a place among fs.epoll.max_user_watches; modifying needs neither. So
 *   watch_start() adds the descriptor itself.
 */
#ifndef KOPS_WATCH_H
#define KOPS_WATCH_H

#include <uv.h>

/*
 * Room in the loop's table for each descriptor number that this process may have (RLIMIT_NOFILE): 8 bytes each.
 * 0 or UV_*; where there is no memory libuv aborts, so this is for the start. What it took is freed when the
 * loop runs.
 */
int watch_make_room(uv_loop_t *loop);

/* uv_poll_start(), but 0 or UV_*: where the descriptor cannot be watched, it is as after uv_poll_stop(). */
int watch_start(uv_poll_t *poll, int events, uv_poll_cb fn);

#endif
