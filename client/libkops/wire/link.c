/* link.c: connects the socket, notices its loss and connects again. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "libkops/base/base.h"
#include "libkops/base/fd.h"
#include "libkops/wire/link.h"
#include "user_socket.h"

#define PAUSE_MIN_US 5000
#define PAUSE_MAX_US 100000
#define QUEUE_US     100000 /* longest wait in a queue of connections */

/* The program's own code ran since the last call, so the socket must be checked again. */
int client_may_use(kops *k)
{
	k->link.sock_is_known = false;
	if (client_is_copy(k))
		return client_fail(
		    k, KOPS_E_STATE,
		    "this handle belongs to process %ld, which forked; open one of your own with kops_open()",
		    (long)k->owner);
	return 0;
}

int client_may_wait(kops *k)
{
	if (k->in_callback && !client_is_copy(k))
		return client_fail(k, KOPS_E_STATE, "a callback must not call a function that blocks");
	return client_may_use(k);
}

static void move_to(kops *k, enum link_state to)
{
	static const bool allowed[4][4] = {
	    [LINK_DOWN] = {[LINK_GREETING] = true},
	    [LINK_GREETING] = {[LINK_UP] = true, [LINK_BROKEN] = true, [LINK_DOWN] = true},
	    [LINK_UP] = {[LINK_BROKEN] = true, [LINK_DOWN] = true},
	    [LINK_BROKEN] = {[LINK_DOWN] = true},
	};
	(void)allowed; /* without assertions */
	assert(allowed[k->link.state][to]);
	k->link.state = to;
}

/* ---- Connecting ---- */

/* Writes the cause for people into link.why, with the next step if there is one. */
static int explain(kops *k, int error)
{
	static const struct {
		int error, status;
		const char *why;
	} rows[] = {
	    {ENOENT, KOPS_E_CONNECT, "no such file; is kopsd running? (systemctl status kopsd.socket)"},
	    {ECONNREFUSED, KOPS_E_CONNECT,
	     "connection refused; is kopsd running? (systemctl status kopsd.socket)"},
	    {EACCES, KOPS_E_CONNECT,
	     "permission denied; is your user in group kops? After usermod, log in again or run newgrp kops"},
	    {EAGAIN, KOPS_E_BUSY, "the queue of connections is full; is kopsd stuck? (systemctl status kopsd)"},
	    {EINTR, KOPS_E_BUSY, "interrupted by a signal while the queue of connections was full"},
	    {EPROTOTYPE, KOPS_E_CONNECT, "the socket belongs to another program"},
	    {EMFILE, KOPS_E_CONNECT, CLIENT_NO_FDS},
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		if (rows[i].error != error)
			continue;
		snprintf(k->link.why, sizeof k->link.why, "%s", rows[i].why);
		return rows[i].status;
	}
	snprintf(k->link.why, sizeof k->link.why, "%s", strerror(error));
	return KOPS_E_CONNECT;
}

static struct timeval timeval_of(int64_t us)
{
	return (struct timeval){.tv_sec = us / 1000000, .tv_usec = us % 1000000};
}

/*
 * If the daemon's queue of connections is full, Linux admits blocked connects in order. A nonblocking one that
 * is repeated comes after them.
 */
static int connect_to(int sock, const struct sockaddr_un *address, int64_t until_us)
{
	int64_t left_us = until_us - client_now_us();
	const struct timeval limit = timeval_of(left_us < 1 ? 1 : left_us < QUEUE_US ? left_us : QUEUE_US);
	if (setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) < 0)
		return -1;
	return connect(sock, (const struct sockaddr *)address, sizeof *address);
}

/* Tries the user's own socket first: other users' connections do not fill its queue. */
static int connect_socket(const kops *k, int sock, int64_t until_us)
{
	const char *path = k->link.address.sun_path;
	struct sockaddr_un own;
	if (user_socket_is_safe(path) && user_socket_address(path, geteuid(), &own) &&
	    connect_to(sock, &own, until_us) == 0)
		return 0;
	return connect_to(sock, &k->link.address, until_us);
}

/*
 * Opens a socket that blocks for a second at most, so that waiting for a reply takes one system call. Callers
 * that must not block pass MSG_DONTWAIT.
 */
static int open_socket(kops *k, int64_t until_us)
{
	const struct timeval limit = timeval_of(CLIENT_BLOCK_US);
	int waits = until_us > client_now_us() ? 0 : SOCK_NONBLOCK;
	int sock = client_fd_raise(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | waits, 0));
	if (sock < 0)
		return explain(k, errno);
	if (connect_socket(k, sock, until_us) < 0 ||
	    setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) < 0 ||
	    fcntl(sock, F_SETFL, 0) < 0) {
		int error = errno;
		close(sock);
		return explain(k, error);
	}
	if (client_fd_keep(&k->link.sock, sock) < 0)
		return explain(k, errno);
	k->link.sock_is_known = true;
	move_to(k, LINK_GREETING);
	return 0;
}

int client_link_open(kops *k, int64_t until_us)
{
	k->link.pause_us = k->link.pause_us * 2 < PAUSE_MIN_US ? PAUSE_MIN_US : k->link.pause_us * 2;
	if (k->link.pause_us > PAUSE_MAX_US)
		k->link.pause_us = PAUSE_MAX_US;
	k->link.attempt_us = client_now_us() + k->link.pause_us;
	k->link.attempts++;

	int status = open_socket(k, until_us);
	if (status == KOPS_E_BUSY)
		k->link.pause_us =
		    0; /* retry at once, since the next free entry of the queue goes to the first to ask */
	return status;
}

/*
 * Gives the socket a number other than the last connection's. An event loop that watches the old number would
 * not notice the new file.
 */
int client_link_change_number(kops *k)
{
	int number = k->link.sock.number;
	if (number != k->link.watched)
		return 0;
	int other = fcntl(number, F_DUPFD_CLOEXEC, number + 1);
	if (other < 0)
		return client_fail(k, KOPS_E_SYSTEM, "cannot duplicate the socket: %s", strerror(errno));
	close(number);
	k->link.sock.number = other;
	return 0;
}

/* ---- Losing it ---- */

void client_link_hang_up(kops *k)
{
	if (!client_is_copy(k) && client_fd_is_ours(&k->link.sock))
		shutdown(k->link.sock.number, SHUT_RDWR);
	client_fd_close(&k->link.sock);
}

void client_link_broken(kops *k)
{
	if (k->link.state != LINK_BROKEN)
		move_to(k, LINK_BROKEN);
}

void client_link_up(kops *k)
{
	move_to(k, LINK_UP);
	k->link.give_up_us = CLIENT_NEVER;
}

bool client_link_close(kops *k)
{
	struct link *link = &k->link;
	bool is_gone = link->state == LINK_BROKEN;
	link->closed_here = is_gone && link->sock.number < 0;
	bool died = is_gone && !link->closed_here && !link->draining;
	client_link_hang_up(k);
	link->draining = false;
	if (link->state != LINK_DOWN)
		move_to(k, LINK_DOWN);
	return died;
}

bool client_link_has_socket(kops *k)
{
	if (k->link.sock_is_known || k->link.sock.number < 0)
		return k->link.sock.number >= 0;
	k->link.sock_is_known = client_fd_is_ours(&k->link.sock);
	if (k->link.sock_is_known)
		return true;
	snprintf(k->link.why, sizeof k->link.why,
	         "this program closed or replaced descriptor %d, libkops's connection to kopsd",
	         k->link.sock.number);
	k->link.sock.number = -1;
	client_link_broken(k);
	return false;
}

void client_link_want(kops *k)
{
	int64_t now;
	if (k->link.state != LINK_DOWN)
		return;
	now = client_now_us();
	if (k->link.give_up_us != CLIENT_NEVER && now < k->link.give_up_us)
		return;
	k->link.give_up_us = now + client_timeout_us(k);
	k->link.attempts = 0;
	k->link.attempt_us = now + k->link.pause_us;
}

void client_link_drain(kops *k)
{
	k->link.draining = true;
	snprintf(k->link.why, sizeof k->link.why, "kopsd is stopping");
}

int64_t client_link_next_us(const kops *k)
{
	switch (k->link.state) {
	case LINK_UP:
		return CLIENT_NEVER;
	case LINK_BROKEN:
		return 0;
	case LINK_DOWN:
		return k->link.attempt_us < k->link.give_up_us && k->link.give_up_us != CLIENT_NEVER
		           ? k->link.attempt_us
		           : k->link.give_up_us;
	default:
		return k->link.give_up_us;
	}
}

bool client_can_send(const kops *k)
{
	return (k->link.state == LINK_UP || k->link.state == LINK_GREETING) && !k->link.draining;
}
