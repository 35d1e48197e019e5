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

#include "notify.h"

#define LOCK_PATH_BYTES (CONFIG_TEXT_BYTES + sizeof ".lock")

static int socket_why(char why[CONFIG_WHY_BYTES], const char *path, const char *what)
{
	const char *advice = errno == ENOENT ? "; create its directory, or choose another --socket" : "";

	snprintf(why, CONFIG_WHY_BYTES, "cannot listen at %s: %s: %s%s", path, what, strerror(errno), advice);
	return KOPS_E_SYSTEM;
}

/* ---- The lock: one process at a time checks whether a socket is dead, and replaces it ---- */

static void lock_path(const struct listener *l, char path[LOCK_PATH_BYTES])
{
	snprintf(path, LOCK_PATH_BYTES, "%s.lock", l->path);
}

/* Returns true if the locked file is still the one at the path; its last owner removes it when it stops.
 * Otherwise sets errno. */
static bool is_at(int fd, const char *path)
{
	struct stat ours, there;

	if (fstat(fd, &ours) < 0 || lstat(path, &there) < 0)
		return false;
	errno = ENOENT;
	return ours.st_ino == there.st_ino && ours.st_dev == there.st_dev;
}

static int lock(int fd)
{
	int rc;

	do
		rc = flock(fd, LOCK_EX | LOCK_NB);
	while (rc < 0 && errno == EINTR);
	return rc;
}

static int lock_why(char why[CONFIG_WHY_BYTES], const char *path)
{
	if (errno != EWOULDBLOCK)
		return socket_why(why, path, "flock() of its lock file");
	snprintf(why, CONFIG_WHY_BYTES,
	         "another kopsd is listening at %s or starting; stop it, or choose another --socket", path);
	return KOPS_E_EXISTS;
}

/* KOPS_E_BUSY: the locked file was removed meanwhile. */
static int try_lock(struct listener *l, const char *path, char why[CONFIG_WHY_BYTES])
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	int rc = KOPS_E_BUSY;

	if (fd < 0)
		return socket_why(why, l->path, "open() of its lock file");
	if (lock(fd) < 0) {
		rc = lock_why(why, l->path);
	} else if (is_at(fd, path)) {
		l->lock_fd = fd;
		return 0;
	} else if (errno != ENOENT) {
		rc = socket_why(why, l->path, "fstat() of its lock file");
	}
	close(fd);
	return rc;
}

/* Takes the lock, which is held until the process ends. */
static int take_lock(struct listener *l, char why[CONFIG_WHY_BYTES])
{
	char path[LOCK_PATH_BYTES];
	int rc;

	lock_path(l, path);
	do
		rc = try_lock(l, path, why);
	while (rc == KOPS_E_BUSY);
	return rc;
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
 * Removes a path left by a dead daemon, but not one that answers. Only a refused connection shows that nobody
 * listens: a socket of another type answers EPROTOTYPE, a full one EAGAIN, and both are alive.
 */
static int clear_path(const struct sockaddr_un *address, char why[CONFIG_WHY_BYTES])
{
	struct stat st;
	int probe, rc, error;

	if (lstat(address->sun_path, &st) < 0)
		return 0;
	if (!S_ISSOCK(st.st_mode)) {
		snprintf(why, CONFIG_WHY_BYTES,
		         "cannot listen at %s: the path exists and is not a socket; remove it, or choose "
		         "another --socket",
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
		         "another kopsd is listening at %s; stop it, or choose another --socket",
		         address->sun_path);
		return KOPS_E_EXISTS;
	}
	if (error != ECONNREFUSED) {
		snprintf(why, CONFIG_WHY_BYTES,
		         "cannot listen at %s: a socket exists there and may be in use (%s); remove it, or "
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
		         "invalid inherited descriptors: expected one listening SOCK_SEQPACKET socket; check "
		         "kopsd.socket");
		return KOPS_E_INVALID;
	}
	if (fd >= 0) {
		l->fd = fd;
		return 0;
	}
	return bind_path(l, why);
}

int listener_open(struct listener *l, struct sessions *sessions, const char *path, char why[CONFIG_WHY_BYTES])
{
	char reason[WHY_BYTES];
	int rc;

	*l = (struct listener){.path = path, .fd = -1, .lock_fd = -1};
	doors_init(&l->doors, sessions);
	rc = open_socket(l, why);
	if (rc < 0)
		return rc;
	rc = doors_open(&l->doors, l->fd, reason);
	if (rc < 0)
		snprintf(why, CONFIG_WHY_BYTES, "cannot listen at %s: %s", path, reason);
	return rc;
}

void listener_start(struct listener *l)
{
	doors_start(&l->doors);
}

void listener_unlink(struct listener *l)
{
	if (l->owns_path)
		unlink(l->path);
	l->owns_path = false;
}

void listener_stop(struct listener *l)
{
	doors_stop(&l->doors);
	listener_unlink(l);
}

void listener_close(struct listener *l)
{
	listener_unlink(l);
	if (l->fd >= 0)
		close(l->fd);
	doors_close(&l->doors);
	drop_lock(l);
}
