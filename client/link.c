/* link.c: the connection: connect, greet, lose, connect again, give up. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "client.h"
#include "decimal.h"
#include "user_socket.h"

#define PAUSE_MIN_US 5000
#define PAUSE_MAX_US 100000
#define PLACE_TRIES  10     /* with these pauses half a second */
#define PLACE_US     100000 /* at most for a place in one queue of connections */

static void move_to(kops *k, enum link_state to)
{
	static const bool allowed[4][4] = {
	    [LINK_DOWN] = {[LINK_GREETING] = true},
	    [LINK_GREETING] = {[LINK_UP] = true, [LINK_BROKEN] = true, [LINK_DOWN] = true},
	    [LINK_UP] = {[LINK_BROKEN] = true, [LINK_DOWN] = true},
	    [LINK_BROKEN] = {[LINK_DOWN] = true},
	};
	(void)allowed; /* without assertions */
	assert(allowed[k->state][to]);
	k->state = to;
}

/* ---- Connecting ---- */

/* The cause for people, with the next step where there is one. */
static int explain(kops *k, int error)
{
	static const struct {
		int error, status;
		const char *why;
	} rows[] = {
	    {ENOENT, KOPS_E_CONNECT, "no such file; is kopsd running? (systemctl status kopsd.socket)"},
	    {ECONNREFUSED, KOPS_E_CONNECT,
	     "nothing listens there; is kopsd running? (systemctl status kopsd.socket)"},
	    {EACCES, KOPS_E_CONNECT,
	     "permission denied; is your user in group kops? After usermod, log in again or run newgrp kops"},
	    {EAGAIN, KOPS_E_BUSY, "too many connections wait there; is kopsd stuck? (systemctl status kopsd)"},
	    {EINTR, KOPS_E_BUSY, "a signal came while others were to connect first"},
	    {EPROTOTYPE, KOPS_E_CONNECT, "that socket belongs to another program"},
	    {EMFILE, KOPS_E_CONNECT, CLIENT_NO_FDS},
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		if (rows[i].error != error)
			continue;
		snprintf(k->why, sizeof k->why, "%s", rows[i].why);
		return rows[i].status;
	}
	snprintf(k->why, sizeof k->why, "%s", strerror(error));
	return KOPS_E_CONNECT;
}

static struct timeval timeval_of(int64_t us)
{
	return (struct timeval){.tv_sec = us / 1000000, .tv_usec = us % 1000000};
}

/*
 * Where the daemon's queue of connections is full, Linux lets those in who wait for a place, in order; who asks
 * again and again comes behind them.
 */
static int connect_to(int sock, const struct sockaddr_un *address, int64_t until_us)
{
	int64_t left_us = until_us - client_now_us();
	const struct timeval place = timeval_of(left_us < 1 ? 1 : left_us < PLACE_US ? left_us : PLACE_US);
	if (setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &place, sizeof place) < 0)
		return -1;
	return connect(sock, (const struct sockaddr *)address, sizeof *address);
}

/* A user that got in before may have a socket of its own, whose queue others' connections do not fill. */
static int connect_socket(const kops *k, int sock, int64_t until_us)
{
	const char *path = k->address.sun_path;
	struct sockaddr_un own;
	if (user_socket_is_safe(path) && user_socket_address(path, geteuid(), &own) &&
	    connect_to(sock, &own, until_us) == 0)
		return 0;
	return connect_to(sock, &k->address, until_us);
}

/*
 * Later the socket blocks for a second at most, so that waiting for a reply takes one system call; whoever must
 * not block says MSG_DONTWAIT.
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
	if (client_fd_keep(&k->sock, sock) < 0)
		return explain(k, errno);
	k->sock_is_known = true;
	move_to(k, LINK_GREETING);
	return 0;
}

/* A loop that watches the last connection would take one of the same number for it, and never hear of it. */
static int change_number(kops *k)
{
	int number = k->sock.number;
	if (number != k->watched)
		return 0;
	int other = fcntl(number, F_DUPFD_CLOEXEC, number + 1);
	if (other < 0)
		return client_fail(k, KOPS_E_SYSTEM, "cannot duplicate the socket: %s", strerror(errno));
	close(number);
	k->sock.number = other;
	return 0;
}

static int send_hello(kops *k)
{
	Kops__V1__Hello hello = KOPS__V1__HELLO__INIT;
	Kops__V1__Request request = KOPS__V1__REQUEST__INIT;
	hello.version_min = hello.version_max = CLIENT_VERSION;
	hello.client = k->name;
	request.id = k->hello = client_new_id(k, CLIENT_CALL);
	request.body_case = KOPS__V1__REQUEST__BODY_HELLO;
	request.hello = &hello;
	return client_send_request(k, &request, NULL);
}

static int send_jobs(kops *k)
{
	for (struct links *at = k->out.next; at != &k->out; at = at->next) {
		int status = client_job_send(LINKS_ENTRY(at, kops_job, out));
		if (status < 0)
			return status;
	}
	return 0;
}

void client_link_hang_up(kops *k)
{
	if (!client_is_copy(k) && client_fd_is_ours(&k->sock))
		shutdown(k->sock.number, SHUT_RDWR);
	client_fd_close(&k->sock);
}

/*
 * Closes; what was out counts as unsent only after client_job_unsend(). True when a daemon that welcomed
 * this connection is gone without a word of stopping. Before its Welcome it ran nothing of what was sent.
 */
static bool disconnect(kops *k)
{
	k->closed_here = k->state == LINK_BROKEN && k->sock.number < 0;
	bool died = k->state == LINK_BROKEN && !k->closed_here && k->hello == 0 && !k->draining;
	client_outbox_clear(k);
	client_ring_close(k);
	client_link_hang_up(k);
	client_job_unprepare(k);
	k->draining = false;
	k->hello = 0;
	if (k->call)
		k->call->id = 0;
	client_buffer_forget_requests(k, died);
	if (k->state != LINK_DOWN)
		move_to(k, LINK_DOWN);
	return died;
}

int client_link_connect(kops *k, int64_t until_us)
{
	k->pause_us = k->pause_us * 2 < PAUSE_MIN_US ? PAUSE_MIN_US : k->pause_us * 2;
	if (k->pause_us > PAUSE_MAX_US)
		k->pause_us = PAUSE_MAX_US;
	k->attempt_us = client_now_us() + k->pause_us;
	k->attempts++;

	int status = open_socket(k, until_us);
	if (status == KOPS_E_BUSY)
		k->pause_us = 0; /* a place goes to whoever asks at the right moment */
	if (status < 0)
		return status;
	status = change_number(k);
	if (status == 0)
		status = send_hello(k);
	if (status == 0)
		status = client_buffer_restore(k);
	if (status == 0)
		status = send_jobs(k);
	if (status == 0)
		status = client_call_send(k);
	if (status < 0) {
		snprintf(k->why, sizeof k->why, "%s", k->error);
		client_link_broken(k);
		return status;
	}
	client_buffer_drop_freed(k);
	return 0;
}

/* One that waited to know what this daemon can do. */
static void send_call(kops *k)
{
	int status = k->call && !k->call->id ? client_call_send(k) : 0;
	if (status < 0)
		client_waiter_end(&k->call->waiter, status, k->error, NULL);
}

/*
 * A refusal that passes. A daemon that cannot start says so until its settings are corrected. Beyond a limit of
 * sessions a handle that was welcome before waits for a place as long as for a daemon; a new one half a second,
 * as a session may just have ended.
 */
static bool is_worth_another_try(const kops *k, const Kops__V1__Reply *reply)
{
	if (reply->id == 0 && reply->status != KOPS_E_SHUTDOWN)
		return k->daemon[0] || k->attempts < PLACE_TRIES;
	return reply->status == KOPS_E_SHUTDOWN || reply->status == KOPS_E_BUSY;
}

static void welcomed(kops *k, const Kops__V1__Reply *reply)
{
	k->hello = 0;
	if (k->state == LINK_BROKEN) /* it died since */
		return;
	move_to(k, LINK_UP);
	k->give_up_us = CLIENT_NEVER;
	snprintf(k->daemon, sizeof k->daemon, "%s", reply->welcome->daemon);
	if (reply->welcome->max_ops > 0)
		k->ops_max = reply->welcome->max_ops;
	k->prepares = reply->welcome->prepares;
	k->lists = reply->welcome->lists;
	k->ring_limit =
	    reply->welcome->ring_entries < RING_ENTRIES_MAX ? reply->welcome->ring_entries : RING_ENTRIES_MAX;
	client_waiter_end(k->greeting, 0, NULL, reply);
	send_call(k);
}

void client_link_answered(kops *k, const Kops__V1__Reply *reply)
{
	char why[CLIENT_WHY_BYTES];
	if (is_worth_another_try(k, reply)) {
		snprintf(k->why, sizeof k->why, "kopsd refuses new connections: %s", reply->message);
		client_job_refused(k);
		client_link_down(k);
	} else if (reply->status < 0) {
		snprintf(why, sizeof why, "kopsd refused the connection: %s", reply->message);
		client_link_give_up(k, reply->status, why);
	} else if (reply->body_case != KOPS__V1__REPLY__BODY_WELCOME) {
		client_link_give_up(k, KOPS_E_PROTOCOL, "kopsd answered Hello without a Welcome");
	} else if (reply->welcome->version != CLIENT_VERSION) {
		snprintf(why, sizeof why, "kopsd chose protocol version %u, this libkops speaks %d",
		         reply->welcome->version, CLIENT_VERSION);
		client_link_give_up(k, KOPS_E_VERSION, why);
	} else {
		welcomed(k, reply);
	}
}

/* ---- Losing it ---- */

void client_link_broken(kops *k)
{
	if (k->state != LINK_BROKEN)
		move_to(k, LINK_BROKEN);
	client_outbox_clear(k);
}

bool client_link_has_socket(kops *k)
{
	if (k->sock_is_known || k->sock.number < 0)
		return k->sock.number >= 0;
	k->sock_is_known = client_fd_is_ours(&k->sock);
	if (k->sock_is_known)
		return true;
	snprintf(k->why, sizeof k->why,
	         "this program closed descriptor %d, libkops's connection to kopsd, or put another file in its "
	         "place",
	         k->sock.number);
	k->sock.number = -1;
	client_link_broken(k);
	return false;
}

static bool is_wanted(const kops *k)
{
	return !links_is_empty(&k->out) || k->call || k->greeting || client_buffer_is_awaited(k);
}

void client_link_want(kops *k)
{
	int64_t now;
	if (k->state != LINK_DOWN)
		return;
	now = client_now_us();
	if (k->give_up_us != CLIENT_NEVER && now < k->give_up_us)
		return;
	k->give_up_us = now + client_timeout_us(k);
	k->attempts = 0;
	k->attempt_us = now + k->pause_us;
}

void client_link_down(kops *k)
{
	client_ring_take(k); /* what the daemon had done */
	bool died = disconnect(k);
	if (k->closed_here)
		client_buffer_distrust(k);
	client_job_unsend(k, died);
	client_job_end_doomed(k);
	client_buffer_end_doomed(k);
	if (is_wanted(k))
		client_link_want(k);
	else
		k->give_up_us = CLIENT_NEVER;
}

void client_link_drain(kops *k)
{
	k->draining = true;
	snprintf(k->why, sizeof k->why, "kopsd is stopping");
}

void client_link_give_up(kops *k, int status, const char *why)
{
	if (k->state != LINK_DOWN)
		client_link_down(k);
	k->give_up_us = CLIENT_NEVER;
	k->lost_status = client_fail(k, status, "%s", why);
	client_waiter_end(k->greeting, status, why, NULL);
	if (k->call)
		client_waiter_end(&k->call->waiter, status, why, NULL);
	client_buffer_fail(k, status, why);
	client_job_fail(k, status, why);
}

/* ---- Timers ---- */

int64_t client_link_next_us(const kops *k)
{
	switch (k->state) {
	case LINK_UP:
		return CLIENT_NEVER;
	case LINK_BROKEN:
		return 0;
	case LINK_DOWN:
		return k->attempt_us < k->give_up_us && k->give_up_us != CLIENT_NEVER ? k->attempt_us
		                                                                      : k->give_up_us;
	default:
		return k->give_up_us;
	}
}

static void too_late(kops *k)
{
	char why[CLIENT_WHY_BYTES], seconds[DECIMAL_BYTES];
	if (k->state == LINK_GREETING) {
		snprintf(why, sizeof why,
		         "kopsd at %s did not answer within %u ms; is it stuck? Or does it not start? "
		         "(systemctl status kopsd)%s%.250s",
		         k->address.sun_path, k->timeout_ms, k->attempts > 1 ? "; the try before: " : "",
		         k->attempts > 1 ? k->why : "");
		client_link_give_up(k, k->greeting ? KOPS_E_TIMEOUT : KOPS_E_CONNECT, why);
	} else {
		snprintf(
		    why, sizeof why, "cannot reach kopsd at %s: tried %u times in %s s, the last time: %.250s",
		    k->address.sun_path, k->attempts, decimal_write(seconds, k->timeout_ms / 1000.0), k->why);
		client_link_give_up(k, KOPS_E_CONNECT, why);
	}
}

bool client_link_tick(kops *k, int64_t now_us, int64_t until_us)
{
	int64_t next = client_link_next_us(k);
	if (next == CLIENT_NEVER || k->state == LINK_BROKEN || now_us < next)
		return false;
	client_job_end_doomed(k);
	if (client_is_copy(k)) /* made by a callback */
		return true;
	if (now_us >= k->give_up_us)
		too_late(k);
	else if (k->state == LINK_DOWN && is_wanted(k))
		client_link_connect(k, until_us < k->give_up_us ? until_us : k->give_up_us);
	else if (k->state == LINK_DOWN)
		k->give_up_us = CLIENT_NEVER;
	return true;
}
