#include "base/timers.h"

#include <errno.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* due_ms is in the inner loop's time, which may lie in the past. */
static void set(struct timers *t, uint64_t due_ms)
{
	uint64_t at_ms = due_ms ? due_ms : 1; /* 0 would stop it */
	struct itimerspec when = {.it_value = {(time_t)(at_ms / 1000), (long)(at_ms % 1000) * 1000000}};

	if (timerfd_settime(t->fd, TFD_TIMER_ABSTIME, &when, NULL) == 0)
		t->set_ms = due_ms;
}

/* Before the outer loop sleeps: runs timers and close callbacks that are due. */
static void on_prepare(uv_prepare_t *prepare)
{
	struct timers *t = prepare->data;
	uint64_t due_ms;

	if (!uv_loop_alive(&t->loop))
		return;
	if (uv_backend_timeout(&t->loop) == 0)
		uv_run(&t->loop, UV_RUN_NOWAIT);
	if (!uv_loop_alive(&t->loop))
		return;
	due_ms = uv_now(&t->loop) + (uint64_t)uv_backend_timeout(&t->loop);
	if (due_ms < t->set_ms)
		set(t, due_ms);
}

static void on_due(uv_poll_t *poll, int status, int events)
{
	struct timers *t = poll->data;
	uint64_t n;

	(void)status;
	(void)events;
	if (read(t->fd, &n, sizeof n) < 0)
		return; /* it was set again meanwhile */
	t->set_ms = UINT64_MAX;
	uv_run(&t->loop, UV_RUN_NOWAIT);
}

static void on_idle(uv_idle_t *idle)
{
	uv_close((uv_handle_t *)idle, NULL);
}

/*
 * The inner loop watches a descriptor of libuv's own from its first look on. Look now, because libuv may abort;
 * that then counts as a failed start (on_abort_at_start() in server.c).
 */
static void look_at_timers_once(struct timers *t)
{
	uv_idle_t idle;

	uv_idle_init(&t->loop, &idle);
	uv_idle_start(&idle, on_idle);
	while (uv_run(&t->loop, UV_RUN_NOWAIT) != 0)
		;
}

static int watch_timers(struct timers *t, uv_loop_t *outer)
{
	int rc = uv_poll_init(outer, &t->poll, t->fd);

	if (rc < 0)
		return rc;
	look_at_timers_once(t);
	uv_prepare_init(outer, &t->prepare);
	t->poll.data = t->prepare.data = t;
	uv_poll_start(&t->poll, UV_READABLE, on_due);
	uv_prepare_start(&t->prepare, on_prepare);
	uv_unref((uv_handle_t *)&t->poll);
	uv_unref((uv_handle_t *)&t->prepare);
	return 0;
}

int timers_init(struct timers *t, uv_loop_t *outer)
{
	int rc = uv_loop_init(&t->loop);

	if (rc < 0)
		return rc;
	t->set_ms = UINT64_MAX;
	t->fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	rc = t->fd < 0 ? uv_translate_sys_error(errno) : watch_timers(t, outer);
	if (rc == 0)
		return 0;
	if (t->fd >= 0)
		close(t->fd);
	uv_loop_close(&t->loop);
	return rc;
}

void timers_start(uv_timer_t *timer, uv_timer_cb fn, uint64_t timeout_ms, uint64_t repeat_ms)
{
	uv_update_time(timer->loop);
	uv_timer_start(timer, fn, timeout_ms, repeat_ms);
}

void timers_close(struct timers *t)
{
	uv_run(&t->loop, UV_RUN_DEFAULT);
	uv_loop_close(&t->loop);
	close(t->fd);
}
