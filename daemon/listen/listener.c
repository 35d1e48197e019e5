#include "listen/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "clock.h"
#include "log.h"
#include "notify.h"
#include "share/closing.h"
#include "timers.h"

/*
 * Connections queue in the order in which they came, whoever's they are, and each keeps those behind it waiting
 * for some 10 µs. A flood fills any queue. While there is one, the queue is short: where it is full, Linux lets
 * those in who wait for a place, in order, too.
 */
#define BACKLOG       SOMAXCONN
#define FLOOD_BACKLOG 4
#define FLOOD_MS      1000
#define FLOOD         4096u /* in that time: by default as many as there may be sessions */

#define RETRY_MS        10
#define LOCK_PATH_BYTES (CONFIG_TEXT_BYTES + sizeof ".lock")

static int socket_why(char why[CONFIG_WHY_BYTES], const char *path, const char *what)
{
	const char *advice = errno == ENOENT ? "; make its directory or choose another --socket" : "";

	snprintf(why, CONFIG_WHY_BYTES, "cannot listen at %s: %s: %s%s", path, what, strerror(errno), advice);
	return KOPS_E_SYSTEM;
}

/* ---- The lock: whoever looks whether a socket is dead, and takes its place, does so alone ---- */

static void lock_path(const struct listener *l, char path[LOCK_PATH_BYTES])
{
	snprintf(path, LOCK_PATH_BYTES, "%s.lock", l->path);
}

/* Whether the locked file is still the one at the path: its last owner takes it away when it stops. */
static bool is_at(int fd, const char *path)
{
	struct stat ours, there;

	return fstat(fd, &ours) == 0 && lstat(path, &there) == 0 && ours.st_ino == there.st_ino &&
	       ours.st_dev == there.st_dev;
}

/* Held until we end. */
static int take_lock(struct listener *l, char why[CONFIG_WHY_BYTES])
{
	char path[LOCK_PATH_BYTES];

	lock_path(l, path);
	for (;;) {
		int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);

		if (fd < 0)
			return socket_why(why, l->path, "its lock beside it");
		if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
			close(fd);
			snprintf(why, CONFIG_WHY_BYTES,
			         "another kopsd is listening at %s, or about to; stop it or choose another "
			         "--socket",
			         l->path);
			return KOPS_E_EXISTS;
		}
		if (is_at(fd, path)) {
			l->lock_fd = fd;
			return 0;
		}
		close(fd);
	}
}

static void drop_lock(struct listener *l)
{
	char path[LOCK_PATH_BYTES];

	if (l->lock_fd < 0)
		return;
	lock_path(l, path);
	unlink(path);
	close(l->lock_fd);
	l->lock_fd = -1;
}

/* ---- The socket ---- */

/*
 * A path left behind by a dead daemon is removed; one that answers is not. Only a refused connection shows that
 * nobody listens: a socket of another type answers EPROTOTYPE, a full one EAGAIN, and both are alive.
 */
static int clear_path(const struct sockaddr_un *address, char why[CONFIG_WHY_BYTES])
{
	struct stat st;
	int probe, rc, error;

	if (lstat(address->sun_path, &st) < 0)
		return 0;
	if (!S_ISSOCK(st.st_mode)) {
		snprintf(why, CONFIG_WHY_BYTES, "cannot listen at %s: something that is not a socket is there",
		         address->sun_path);
		return KOPS_E_INVALID;
	}
	probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (probe < 0)
		return socket_why(why, address->sun_path, "socket");
	rc = connect(probe, (const struct sockaddr *)address, sizeof *address);
	error = errno;
	close(probe);
	if (rc == 0 || error == EAGAIN) {
		snprintf(why, CONFIG_WHY_BYTES,
		         "another kopsd is listening at %s; stop it or choose another --socket",
		         address->sun_path);
		return KOPS_E_EXISTS;
	}
	if (error != ECONNREFUSED) {
		snprintf(
		    why, CONFIG_WHY_BYTES,
		    "cannot listen at %s: a socket is there that is not known to be dead (%s); remove it, or "
		    "choose another --socket",
		    address->sun_path, strerror(error));
		return KOPS_E_EXISTS;
	}
	unlink(address->sun_path);
	return 0;
}

static int bind_path(struct listener *l, char why[CONFIG_WHY_BYTES])
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	mode_t mask;
	int rc;

	snprintf(address.sun_path, sizeof address.sun_path, "%.107s", l->path);
	rc = take_lock(l, why);
	if (rc < 0)
		return rc;
	rc = clear_path(&address, why);
	if (rc < 0)
		return rc;
	l->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->fd < 0)
		return socket_why(why, address.sun_path, "socket");
	mask = umask(0117); /* 0660, as kopsd.socket makes it */
	rc = bind(l->fd, (struct sockaddr *)&address, sizeof address);
	umask(mask);
	if (rc < 0)
		return socket_why(why, address.sun_path, "bind");
	l->owns_path = true;
	return 0;
}

static int open_socket(struct listener *l, char why[CONFIG_WHY_BYTES])
{
	int fd = notify_inherited_socket();

	if (fd == KOPS_E_INVALID) {
		snprintf(why, CONFIG_WHY_BYTES,
		         "the inherited socket is not one listening SOCK_SEQPACKET socket; check kopsd.socket");
		return KOPS_E_INVALID;
	}
	if (fd >= 0) {
		l->fd = fd;
		return 0;
	}
	return bind_path(l, why);
}

static void open_reserve(struct listener *l)
{
	if (l->reserve_fd < 0)
		l->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* Out of descriptors: the reserve one lets us take the connection and close it, else it would wake us for ever.
 * False: none was taken. */
static bool shed(struct listener *l)
{
	int fd;

	if (log_may(&l->sheds))
		log_warning("out of file descriptors: a connection was refused; raise LimitNOFILE");
	if (l->reserve_fd >= 0)
		close(l->reserve_fd);
	l->reserve_fd = -1;
	fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC);
	if (fd >= 0)
		closing_add(&l->sessions->engine->accounts, NULL, fd);
	open_reserve(l);
	return fd >= 0;
}

static void on_connection(uv_poll_t *poll, int status, int events);

static void watch(struct listener *l)
{
	if (!uv_is_active((uv_handle_t *)&l->poll))
		uv_poll_start(&l->poll, UV_READABLE, on_connection);
}

/* Without the spare descriptor a connection would wake us at once, for nothing. */
static void watch_when_possible(uv_timer_t *retry)
{
	struct listener *l = retry->data;

	open_reserve(l);
	if (l->reserve_fd >= 0) {
		watch(l);
	} else {
		uv_poll_stop(&l->poll);
		timers_start(retry, watch_when_possible, RETRY_MS, 0);
	}
}

/* ---- Floods ---- */

static bool is_flooded(const struct listener *l)
{
	return uv_is_active((const uv_handle_t *)&l->flood);
}

static void on_flood_second(uv_timer_t *flood)
{
	struct listener *l = flood->data;

	if (l->n_taken < FLOOD) {
		uv_timer_stop(flood);
		listen(l->fd, BACKLOG);
	}
	l->n_taken = 0;
}

static void count_connection(struct listener *l)
{
	uint64_t now = clock_ns();

	l->n_taken++;
	if (is_flooded(l))
		return;
	if (now - l->counted_since_ns > FLOOD_MS * 1000000u) {
		l->counted_since_ns = now;
		l->n_taken = 1;
	}
	if (l->n_taken < FLOOD)
		return;
	l->n_taken = 0;
	listen(l->fd, FLOOD_BACKLOG);
	timers_start(&l->flood, on_flood_second, FLOOD_MS, FLOOD_MS);
}

/* ---- Accepting ---- */

/* A turn of the door. True: there may be more. */
static bool take_connection(struct turns_place *place)
{
	struct listener *l = (struct listener *)((char *)place - offsetof(struct listener, place));
	int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd >= 0) {
		count_connection(l);
		session_arrive(l->sessions, fd);
		open_reserve(l); /* where there was no room for it */
	} else if (errno == EMFILE || errno == ENFILE) {
		if (shed(l))
			return true;
		watch_when_possible(&l->retry);
		return false;
	} else if (errno != EINTR && errno != ECONNABORTED) {
		watch(l);
		return false;
	}
	return true;
}

/*
 * libuv cannot receive memfds over uv_pipe_t, and has no SOCK_SEQPACKET: uv_poll_t and our own recvmsg() it is.
 * Where the door waits for its turn still, the socket is not watched until it had it.
 */
static void on_connection(uv_poll_t *poll, int status, int events)
{
	struct listener *l = poll->data;

	(void)events;
	if (l->place.waits)
		uv_poll_stop(poll);
	else if (status == 0)
		turns_wait(&l->sessions->turns, &l->place);
}

int listener_open(struct listener *l, struct sessions *sessions, const char *path, char why[CONFIG_WHY_BYTES])
{
	int rc;

	*l = (struct listener){.sessions = sessions, .path = path, .fd = -1, .lock_fd = -1, .reserve_fd = -1};
	/* Unwatched, as far as turns know: see on_connection(). */
	l->place = (struct turns_place){.user = &l->door, .take = take_connection, .unwatched = true};
	sessions->engine->accounts.door = &l->door;
	rc = open_socket(l, why);
	if (rc < 0)
		return rc;
	if (listen(l->fd, BACKLOG) < 0) /* an inherited one, too: the last kopsd may have died in a flood */
		return socket_why(why, path, "listen");
	open_reserve(l);
	rc = uv_poll_init(l->sessions->engine->loop, &l->poll, l->fd);
	if (rc < 0) {
		snprintf(why, CONFIG_WHY_BYTES, "cannot watch the listening socket: %s", uv_strerror(rc));
		return KOPS_E_SYSTEM;
	}
	l->poll.data = l;
	uv_timer_init(l->sessions->engine->timers, &l->retry);
	uv_timer_init(l->sessions->engine->timers, &l->flood);
	l->retry.data = l->flood.data = l;
	return 0;
}

void listener_start(struct listener *l)
{
	watch(l);
}

void listener_unlink(struct listener *l)
{
	if (l->owns_path)
		unlink(l->path);
	l->owns_path = false;
}

void listener_stop(struct listener *l)
{
	uv_poll_stop(&l->poll);
	uv_timer_stop(&l->retry);
	uv_timer_stop(&l->flood);
	turns_leave(&l->sessions->turns, &l->place);
	listener_unlink(l);
}

void listener_close(struct listener *l)
{
	listener_unlink(l);
	if (l->fd >= 0)
		close(l->fd);
	if (l->reserve_fd >= 0)
		close(l->reserve_fd);
	drop_lock(l);
}
