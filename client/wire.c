/* wire.c: requests out, replies in, and waiting for them. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "affinity.h"
#include "client.h"

#define PROCESS_MAX 64  /* datagrams read by one kops_process() */
#define LATE_MAX    256 /* datagrams read for others when the time of a wait is up */

/*
 * A look that takes so long gave another thread the CPU, and that one works: who only looks gives it back
 * sooner. The threads of other CPUs may all only look, so some of these are tried. Where that does not help, it
 * is not looked again for a while, longer where that happens again soon: it will where more threads than there
 * are CPUs work.
 */
#define GIVEN_WAY_US   50
#define MOVES_MAX      4
#define CROWDED_US     10000
#define CROWDED_US_MAX 100000
#define CROWDED_TIMES  4

/* With more jobs out than this the device does others while the caller wakes up. */
#define SPIN_JOBS_MAX 8

struct packet {
	struct packet *next;
	kops_job *job;
	const struct descriptor *fd;
	size_t len;
	uint8_t data[];
};

uint64_t client_new_id(kops *k, enum client_kind kind)
{
	return ++k->sequence << CLIENT_KIND_BITS | kind;
}

bool client_can_send(const kops *k)
{
	return (k->state == LINK_UP || k->state == LINK_GREETING) && !k->draining;
}

int64_t client_timeout_us(const kops *k)
{
	return (int64_t)k->timeout_ms * 1000;
}

int64_t client_until_us(const kops *k)
{
	return client_now_us() + client_timeout_us(k);
}

int64_t client_us_of(int timeout_ms)
{
	return timeout_ms < 0 ? CLIENT_NEVER : (int64_t)timeout_ms * 1000;
}

/* ---- Out ---- */

static void note_sent(kops_job *job)
{
	if (job)
		job->sent = true;
}

/* One that is ours no more is not sent: the daemon refuses the request then. */
static int send_with(const kops *k, const uint8_t *data, size_t len, const struct descriptor *fd)
{
	bool has_fd = fd && client_fd_is_ours(fd);
	return message_send(k->sock.number, data, len, has_fd ? &fd->number : NULL, has_fd);
}

static int keep(kops *k, const uint8_t *data, size_t len, const struct descriptor *fd, kops_job *job)
{
	struct packet *packet = malloc(sizeof *packet + len);
	if (!packet)
		return client_fail(k, KOPS_E_NOMEM, "out of memory for a request of %zu bytes", len);
	packet->next = NULL;
	packet->job = job;
	packet->len = len;
	packet->fd = fd;
	memcpy(packet->data, data, len);
	*k->outbox_end = packet;
	k->outbox_end = &packet->next;
	return 0;
}

static void outbox_pop(kops *k)
{
	struct packet *packet = k->outbox;
	k->outbox = packet->next;
	if (!k->outbox)
		k->outbox_end = &k->outbox;
	free(packet);
}

void client_outbox_clear(kops *k)
{
	while (k->outbox)
		outbox_pop(k);
}

int client_send(kops *k, const uint8_t *data, size_t len, const struct descriptor *fd, kops_job *job)
{
	if (k->state == LINK_BROKEN || !client_link_has_socket(k))
		return 0; /* it broke now or on an earlier request of a row; all goes out on the next connection
		           */
	int status = k->outbox ? KOPS_E_BUSY : send_with(k, data, len, fd);
	switch (status) {
	case 0:
		note_sent(job);
		return 0;
	case KOPS_E_BUSY:
		return keep(k, data, len, fd, job);
	case KOPS_E_CONNECT:
		client_link_broken(k);
		return 0;
	default:
		return client_fail(k, KOPS_E_SYSTEM, "cannot send to kopsd: %s", strerror(errno));
	}
}

int client_send_request(kops *k, const Kops__V1__Request *request, const struct descriptor *fd)
{
	size_t len = 0;
	int status = message_pack(&request->base, k->data, &len);
	if (status < 0)
		return client_fail(k, status, "request over %d bytes", MESSAGE_BYTES_MAX);
	return client_send(k, k->data, len, fd, NULL);
}

void client_send_silent(kops *k, Kops__V1__Request *request)
{
	if (k->state != LINK_UP && k->state != LINK_GREETING)
		return;
	request->id = client_new_id(k, CLIENT_SILENT);
	client_send_request(k, request, NULL);
}

/* False when the socket took nothing. */
static bool flush(kops *k)
{
	bool moved = false;
	while (k->outbox && client_link_has_socket(k)) {
		struct packet *packet = k->outbox;
		int status = send_with(k, packet->data, packet->len, packet->fd);
		if (status == KOPS_E_BUSY)
			break;
		moved = true;
		if (status < 0) {
			client_link_broken(k);
			break;
		}
		note_sent(packet->job);
		outbox_pop(k);
	}
	return moved;
}

/* ---- Calls ---- */

/*
 * An older daemon would end the session that asks for a list, so this waits for its Welcome. True: it is not to
 * be sent now, or at all.
 */
static bool hold_back(kops *k, struct call *call)
{
	if (call->verb != KOPS__V1__REQUEST__BODY_LIST_USERS &&
	    call->verb != KOPS__V1__REQUEST__BODY_LIST_SESSIONS && call->verb != KOPS__V1__REQUEST__BODY_TRACE)
		return false;
	if (k->state == LINK_UP && !k->lists)
		client_waiter_end(&call->waiter, KOPS_E_UNSUPPORTED,
		                  "this kopsd is too old to list users, sessions and jobs; update it", NULL);
	return k->state != LINK_UP || !k->lists;
}

/* Written by hand: no verb has more than one field, and Ping, Describe and Stats have none. */
int client_call_send(kops *k)
{
	uint8_t data[48], body[16];
	size_t len = 0, body_len = 0;
	if (!k->call || k->call->waiter.done || hold_back(k, k->call))
		return 0;
	k->call->id = client_new_id(k, CLIENT_CALL);
	if (k->call->before) {
		body[body_len++] = MESSAGE_TAG(1, PROTOBUF_C_WIRE_TYPE_VARINT);
		body_len += message_put_varint(body + body_len, k->call->before);
	}
	data[len++] = MESSAGE_TAG(1, PROTOBUF_C_WIRE_TYPE_VARINT);
	len += message_put_varint(data + len, k->call->id);
	len +=
	    message_put_varint(data + len, (uint64_t)k->call->verb << 3 | PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED);
	data[len++] = (uint8_t)body_len;
	memcpy(data + len, body, body_len);
	return client_send(k, data, len + body_len, NULL, NULL);
}

static void call_answered(kops *k, const Kops__V1__Reply *reply)
{
	if (!k->call || k->call->id != reply->id)
		return; /* nobody waits for it any more */
	if (reply->status == KOPS_E_SHUTDOWN) {
		k->call->id = 0;
		client_link_drain(k);
		return;
	}
	k->pause_us = 0;
	client_waiter_end(&k->call->waiter, reply->status, reply->message, reply);
}

/* ---- In ---- */

/* Returns a phrase when the daemon broke the protocol. */
static const char *dispatch(kops *k, const Kops__V1__Reply *reply, int *fds, unsigned n_fds)
{
	if (reply->body_case == KOPS__V1__REPLY__BODY_WOKEN && k->ring) {
		client_ring_take(k);
		return NULL;
	}
	if (reply->id == 0 && reply->status < 0) {
		if (!k->hello)
			return reply->message[0] ? reply->message : "it said so";
		client_link_answered(k, reply); /* there are too many sessions: Hello was not read */
		return NULL;
	}
	if (reply->id == 0 || reply->id >> CLIENT_KIND_BITS > k->sequence)
		return "a reply to no request";
	if (reply->status > 0)
		return "a positive status";
	if (reply->id == k->hello) {
		client_link_answered(k, reply);
		return NULL;
	}
	if (k->state == LINK_GREETING)
		return "a reply before that to Hello";
	switch (reply->id & ((1 << CLIENT_KIND_BITS) - 1)) {
	case CLIENT_JOB:
		return client_job_answered(k, reply);
	case CLIENT_BUFFER:
		return client_buffer_answered(k, reply, fds, n_fds);
	case CLIENT_CALL:
		call_answered(k, reply);
		return NULL;
	default:
		return reply->id == k->ring_request && !k->ring ? client_ring_answered(k, reply, fds, n_fds)
		                                                : NULL;
	}
}

void client_violation(kops *k, const char *phrase)
{
	char why[CLIENT_WHY_BYTES];
	snprintf(why, sizeof why, "protocol violation between kopsd and libkops: %s", phrase);
	client_buffer_distrust(k);
	client_link_give_up(k, KOPS_E_PROTOCOL, why);
}

static bool is_in_flight(const kops *k)
{
	return client_job_is_in_flight(k) || (k->call && k->call->id) || client_buffer_is_in_flight(k);
}

static void handle_datagram(kops *k, size_t len, int *fds, unsigned n_fds)
{
	const char *phrase = NULL;
	const Kops__V1__Reply *reply = (const Kops__V1__Reply *)message_unpack(
	    &kops__v1__reply__descriptor, k->data, len, MESSAGE_UNKNOWN_ALLOWED, &k->arena, &phrase);
	if (reply)
		phrase = dispatch(k, reply, fds, n_fds);
	for (unsigned i = 0; i < n_fds; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	if (phrase)
		client_violation(k, phrase);
	else if (k->draining && !is_in_flight(k))
		client_link_down(k);
}

/* Sleeps in it where it blocks. */
static int receive_datagram(kops *k, bool block, size_t *ret_len, int *fds, unsigned *ret_n_fds)
{
	if (block)
		k->sock_is_known = false;
	int status = block ? message_recv_wait(k->sock.number, k->data, ret_len)
	                   : message_recv(k->sock.number, k->data, ret_len, fds, ret_n_fds);
	for (unsigned i = 0; i < *ret_n_fds; i++) {
		fds[i] = client_fd_raise(fds[i]);
		if (fds[i] < 0)
			status = KOPS_E_NOMEM;
	}
	while (status < 0 && *ret_n_fds > 0)
		if (fds[--*ret_n_fds] >= 0)
			close(fds[*ret_n_fds]);
	return status;
}

/* Reads one datagram, or the end of the connection. False when there was nothing to read. */
static bool receive(kops *k, bool block)
{
	int fds[MESSAGE_FDS_ROOM];
	unsigned n_fds = 0;
	size_t len = 0;
	if (!client_link_has_socket(k)) {
		client_link_down(k);
		return true;
	}
	int status = receive_datagram(k, block, &len, fds, &n_fds);
	k->fds_lost = status == KOPS_E_NOMEM;
	if (status == 0 || k->fds_lost) {
		handle_datagram(k, len, fds, n_fds);
		return true;
	}
	if (status == KOPS_E_BUSY && k->state != LINK_BROKEN)
		return false;
	if (status == KOPS_E_PROTOCOL) {
		client_violation(k, "a reply over the size limit");
		return true;
	}
	if (status == KOPS_E_CONNECT && k->state != LINK_BROKEN) {
		client_link_broken(k); /* what was answered before may lie behind an ECONNRESET */
		return true;
	}
	snprintf(k->why, sizeof k->why, "kopsd closed the connection; see its log (journalctl -u kopsd)");
	client_link_down(k);
	return true;
}

/* ---- Waiting ---- */

static bool poll_once(kops *k, int64_t now_us, int64_t until_us)
{
	bool moved = false;
	if (k->state != LINK_DOWN && !client_link_has_socket(k))
		return true;
	struct pollfd p = {.fd = k->sock.number, .events = kops_events(k)};
	int64_t left_us = until_us > now_us ? until_us - now_us : 0;
	const struct timespec left = {.tv_sec = left_us / 1000000, .tv_nsec = left_us % 1000000 * 1000};
	k->sock_is_known = false;
	if (ppoll(&p, k->sock.number >= 0, until_us == CLIENT_NEVER ? NULL : &left, NULL) <= 0)
		return false;
	if (p.revents & POLLOUT)
		moved = flush(k);
	if (p.revents & (POLLIN | POLLHUP | POLLERR))
		moved |= receive(k, false);
	return moved;
}

static int64_t min(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Since this was last asked. If not, a virtual machine's host took the CPU, and nobody here gains by our sleep.
 */
static bool another_thread_ran(kops *k)
{
	struct rusage used;
	getrusage(RUSAGE_THREAD, &used);
	bool ran = used.ru_nivcsw != k->switches;
	k->switches = used.ru_nivcsw;
	return ran;
}

static bool slept_lately(const kops *k, int64_t now_us)
{
	return now_us - k->sleep_until_us < k->crowded_us;
}

/* False: it did lately, and it did not help. */
static bool changes_cpu(kops *k, int64_t now_us)
{
	if (now_us - k->given_way_us >= CROWDED_US)
		k->moves_left = MOVES_MAX;
	k->given_way_us = now_us;
	if (slept_lately(k, now_us) || k->moves_left == 0 || !affinity_leave(sched_getcpu()))
		return false;
	k->moves_left--;
	another_thread_ran(k); /* a move counts as one */
	return true;
}

static void sleep_for_a_while(kops *k, int64_t now_us)
{
	bool again = slept_lately(k, now_us);
	k->crowded_us = again ? min(k->crowded_us * CROWDED_TIMES, CROWDED_US_MAX) : CROWDED_US;
	k->sleep_until_us = now_us + k->crowded_us;
}

/*
 * Looks for an answer without sleeping. A thread that waits for this CPU, perhaps kopsd's own, goes first.
 * Where there is one, there are more threads than CPUs.
 */
static bool spin(kops *k, int64_t now_us, int64_t until_us)
{
	while (now_us < until_us) {
		int64_t before_us = now_us;
		if (client_ring_spin(k) || receive(k, false))
			return true;
		sched_yield();
		now_us = client_now_us();
		if (now_us - before_us < GIVEN_WAY_US || !another_thread_ran(k))
			continue;
		k->sock_is_known = false;
		if (!changes_cpu(k, now_us)) {
			sleep_for_a_while(k, now_us);
			return false;
		}
		now_us = client_now_us();
	}
	return false;
}

/* When to stop looking and go to sleep. */
static int64_t looks_until_us(const kops *k, const struct waiter *waiter, int64_t now_us)
{
	int64_t until = now_us + (k->jobs_out > SPIN_JOBS_MAX ? 0 : k->spin_us);
	if (now_us < k->sleep_until_us)
		return now_us;
	bool near = now_us >= waiter->look_from_us && now_us < waiter->look_until_us;
	return near && waiter->look_until_us > until ? waiter->look_until_us : until;
}

/* Moves the connection on, waiting at most until the deadline. False when nothing happened. */
static bool step(kops *k, const struct waiter *waiter, int64_t now_us, int64_t deadline_us)
{
	if (client_link_tick(k, now_us, deadline_us) || client_ring_take(k))
		return true;
	int64_t until = min(client_link_next_us(k), deadline_us);
	int64_t look_until = looks_until_us(k, waiter, now_us);
	if (k->state == LINK_BROKEN)
		return receive(k, false);
	if (look_until > now_us && k->state == LINK_UP && !k->outbox) {
		if (spin(k, now_us, min(look_until, until)))
			return true;
		now_us = client_now_us();
	}
	if (now_us < waiter->look_from_us)
		until = min(until, waiter->look_from_us);
	if (!client_ring_may_sleep(k))
		return true;
	/* The short way, for one that only waits for a reply: one system call instead of two. */
	bool moved = k->state == LINK_UP && !k->outbox && k->buffer_requests == 0 && !k->ring_awaited &&
	                     until - now_us >= CLIENT_BLOCK_US
	                 ? receive(k, true)
	                 : poll_once(k, now_us, until);
	client_ring_woke_up(k);
	return moved;
}

int client_await(kops *k, const struct waiter *waiter, int64_t timeout_us)
{
	unsigned late = 0;
	int64_t now = client_now_us(), deadline;
	if (__builtin_add_overflow(now, timeout_us, &deadline))
		deadline = CLIENT_NEVER;
	while (!waiter->done) {
		bool moved = step(k, waiter, now, deadline);
		if (client_is_copy(k)) /* made by a callback */
			return client_may_use(k);
		if (waiter->done)
			break;
		now = client_now_us();
		if (now < deadline || (k->state != LINK_UP && now >= k->give_up_us))
			continue; /* in the second case the next step gives up, and knows why */
		if (!moved || ++late > LATE_MAX)
			return client_fail(
			    k, KOPS_E_TIMEOUT,
			    "kopsd did not answer within %g s; it may be stopped or busy (systemctl "
			    "status kopsd): allow a longer timeout",
			    k->timeout_ms / 1000.0);
	}
	if (waiter->status < 0)
		return client_fail(k, waiter->status, "%s", waiter->why);
	return 0;
}

void client_waiter_end(struct waiter *waiter, int status, const char *why, const Kops__V1__Reply *reply)
{
	if (!waiter || waiter->done)
		return;
	waiter->done = true;
	waiter->status = status;
	waiter->reply = reply;
	if (status < 0)
		snprintf(waiter->why, sizeof waiter->why, "%s", why && why[0] ? why : kops_strerror(status));
}

/* ---- Event loops ---- */

int kops_fd(kops *k)
{
	if (client_may_use(k) < 0)
		return -1;
	client_link_has_socket(k);
	k->watched = k->sock.number;
	return k->watched;
}

short kops_events(const kops *k)
{
	if (k->sock.number < 0 || client_is_copy(k))
		return 0;
	return k->outbox ? POLLIN | POLLOUT : POLLIN;
}

static int poll_ms(int64_t now_us, int64_t until_us)
{
	if (until_us == CLIENT_NEVER)
		return -1;
	int64_t left = until_us - now_us;
	if (left <= 0)
		return 0;
	return left >= INT64_C(1000) * (INT_MAX - 1) ? INT_MAX : (int)((left + 999) / 1000);
}

/* The program may close our socket, of which poll() and epoll say nothing. */
#define LOOK_MS 1000

static bool is_awaiting(const kops *k)
{
	return k->jobs_out > 0 || k->buffer_requests > 0;
}

int kops_timeout(const kops *k)
{
	int64_t next = client_link_next_us(k);
	if (client_is_copy(k))
		return -1;
	if (!client_ring_lets_sleep(k))
		return 0;
	int ms = next == CLIENT_NEVER ? -1 : poll_ms(client_now_us(), next);
	return is_awaiting(k) && (ms < 0 || ms > LOOK_MS) ? LOOK_MS : ms;
}

int kops_process(kops *k)
{
	unsigned before = k->ended;
	int status = client_may_wait(k);
	if (status < 0)
		return status;
	k->lost_status = 0;
	client_link_tick(k, client_now_us(), 0);
	if (k->state != LINK_DOWN && !client_is_copy(k)) /* a callback may have made one */
		flush(k);
	for (unsigned i = 0; i < PROCESS_MAX && k->state != LINK_DOWN && !client_is_copy(k); i++)
		if (!receive(k, false))
			break;
	status = client_may_use(k);
	if (status < 0)
		return status;
	client_ring_may_sleep(k); /* last, as a datagram of before said only that there was something then */
	status = client_may_use(k);
	if (status < 0)
		return status;
	return k->lost_status < 0 ? k->lost_status : (int)(k->ended - before);
}
