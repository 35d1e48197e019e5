#include "share/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- Room ---- */

/* Watches the highest descriptor number. */
struct highest {
	uv_poll_t poll;
	int fd;
};

static void on_event(uv_poll_t *poll, int status, int events)
{
	(void)poll;
	(void)status;
	(void)events;
}

static void on_closed(uv_handle_t *handle)
{
	struct highest *highest = handle->data;

	close(highest->fd);
	free(highest);
}

/* Returns a descriptor with the highest possible number. */
static int open_highest(void)
{
	struct rlimit limit;
	int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), high = -1;

	if (fd >= 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur <= INT_MAX)
		high = fcntl(fd, F_DUPFD_CLOEXEC, (int)limit.rlim_cur - 1);
	if (fd >= 0)
		close(fd);
	return high;
}

int watch_make_room(uv_loop_t *loop)
{
	struct highest *h = calloc(1, sizeof *h);
	int rc;

	if (!h)
		return UV_ENOMEM;
	h->fd = open_highest();
	rc = h->fd < 0 ? uv_translate_sys_error(errno) : uv_poll_init(loop, &h->poll, h->fd);
	if (rc < 0) {
		if (h->fd >= 0)
			close(h->fd);
		free(h);
		return rc;
	}
	h->poll.data = h;
	uv_poll_start(&h->poll, UV_READABLE, on_event);
	uv_close((uv_handle_t *)&h->poll, on_closed);
	return 0;
}

/* ---- Watching ---- */

int watch_start(uv_poll_t *poll, int events, uv_poll_cb fn)
{
	struct epoll_event event = {0};
	uv_os_fd_t fd;
	int rc = uv_fileno((uv_handle_t *)poll, &fd);

	if (rc == 0)
		rc = uv_poll_start(poll, events, fn);
	if (rc < 0)
		return rc;
	event.events = (events & UV_READABLE ? EPOLLIN : 0u) | (events & UV_WRITABLE ? EPOLLOUT : 0u);
	event.data.fd = fd;
	if (epoll_ctl(uv_backend_fd(poll->loop), EPOLL_CTL_ADD, fd, &event) == 0 || errno == EEXIST)
		return 0;
	rc = uv_translate_sys_error(errno);
	uv_poll_stop(poll);
	return rc;
}
