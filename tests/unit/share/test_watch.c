/*
 * Tests that failures for which libuv would abort are errors of one descriptor: no room in its table, and
 * epoll_ctl() that fails.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "share/watch.h"

static bool no_realloc;
static unsigned adds_that_fail;

static void *realloc_or_fail(void *memory, size_t bytes)
{
	return no_realloc ? NULL : realloc(memory, bytes);
}

/* Replaces the system's. */
int epoll_ctl(int set, int op, int fd, struct epoll_event *event)
{
	int (*real)(int, int, int, struct epoll_event *) = dlsym(RTLD_NEXT, "epoll_ctl");

	if (op == EPOLL_CTL_ADD && adds_that_fail > 0) {
		adds_that_fail--;
		errno = ENOSPC;
		return -1;
	}
	return real(set, op, fd, event);
}

static unsigned n_events;

static void on_event(uv_poll_t *poll, int status, int events)
{
	char byte;
	uv_os_fd_t fd;

	assert_int_equal(status, 0);
	assert_int_equal(events, UV_READABLE);
	assert_int_equal(uv_fileno((uv_handle_t *)poll, &fd), 0);
	assert_int_equal(read(fd, &byte, 1), 1);
	n_events++;
	uv_stop(poll->loop);
}

static int highest(void)
{
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	return (int)limit.rlim_cur - 1;
}

static int set_up(void **state)
{
	static uv_loop_t loop;
	struct rlimit limit;

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_cur < 5000 ? limit.rlim_cur : 5000;
	setrlimit(RLIMIT_NOFILE, &limit);
	*state = &loop;
	return uv_loop_init(&loop);
}

static int tear_down(void **state)
{
	uv_run(*state, UV_RUN_DEFAULT);
	return uv_loop_close(*state);
}

/* Opens a pipe whose reading end has the highest number. Returns the other end. */
static int open_pipe(uv_loop_t *loop, uv_poll_t *poll)
{
	int ends[2], high;

	assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
	high = fcntl(ends[0], F_DUPFD_CLOEXEC, highest());
	assert_int_equal(high, highest());
	close(ends[0]);
	assert_int_equal(uv_poll_init(loop, poll, high), 0);
	return ends[1];
}

static void close_pipe(uv_poll_t *poll, int other)
{
	uv_close((uv_handle_t *)poll, NULL);
	uv_run(poll->loop, UV_RUN_DEFAULT);
	close(highest());
	close(other);
}

static void no_number_needs_more_room(void **state)
{
	uv_loop_t *loop = *state;
	uv_poll_t poll;
	int other;

	assert_int_equal(watch_make_room(loop), 0);
	uv_run(loop, UV_RUN_DEFAULT);
	assert_true(loop->nwatchers > (unsigned)highest());
	assert_int_equal(fcntl(highest(), F_GETFD), -1); /* its descriptor is closed */
	no_realloc = true;
	other = open_pipe(loop, &poll);
	assert_int_equal(watch_start(&poll, UV_READABLE, on_event), 0);
	no_realloc = false;
	close_pipe(&poll, other);
}

static void no_room_is_an_error(void **state)
{
	uv_loop_t *loop = *state;
	struct rlimit before, limit;

	/* Allows no descriptor with so high a number. */
	getrlimit(RLIMIT_NOFILE, &before);
	limit = (struct rlimit){.rlim_cur = 3, .rlim_max = before.rlim_max};
	setrlimit(RLIMIT_NOFILE, &limit);
	assert_int_equal(watch_make_room(loop), UV_EMFILE);
	setrlimit(RLIMIT_NOFILE, &before);
	adds_that_fail = 1;
	assert_int_equal(watch_make_room(loop), UV_ENOSPC);
	assert_int_equal(fcntl(highest(), F_GETFD), -1);
}

static void what_cannot_be_watched_is_an_error(void **state)
{
	uv_loop_t *loop = *state;
	uv_poll_t poll;
	int other = open_pipe(loop, &poll);

	adds_that_fail = 1;
	assert_int_equal(watch_start(&poll, UV_READABLE, on_event), UV_ENOSPC);
	assert_false(uv_is_active((uv_handle_t *)&poll));
	uv_run(loop, UV_RUN_NOWAIT); /* it does not retry that itself */
	close_pipe(&poll, other);
}

/*
 * libuv adds it too, and takes the failure of that for success; watch_start() relies on this. From 1.45 on
 * libuv may do so by io_uring, so calls of epoll_ctl() would show nothing.
 */
static void what_is_watched_comes(void **state)
{
	uv_loop_t *loop = *state;
	uv_poll_t poll;
	int other = open_pipe(loop, &poll);

	n_events = 0;
	for (unsigned i = 1; i <= 3; i++) {
		assert_int_equal(watch_start(&poll, UV_READABLE, on_event), 0);
		assert_int_equal(write(other, "x", 1), 1);
		uv_run(loop, UV_RUN_DEFAULT);
		assert_int_equal(n_events, i);
		uv_poll_stop(&poll);
	}
	close_pipe(&poll, other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(no_number_needs_more_room, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(no_room_is_an_error, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(what_cannot_be_watched_is_an_error, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(what_is_watched_comes, set_up, tear_down),
	};

	uv_replace_allocator(malloc, realloc_or_fail, calloc, free);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
