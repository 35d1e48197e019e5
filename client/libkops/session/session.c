/*
 * session.c: the messages of a connection: Hello and everything unanswered after it, the owners of replies, and
 * what happens to jobs, buffers and calls when the connection is lost.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "decimal.h"
#include "libkops/base/base.h"
#include "libkops/base/fd.h"
#include "libkops/job/buffer.h"
#include "libkops/job/job.h"
#include "libkops/job/published.h"
#include "libkops/session/session.h"
#include "libkops/wire/link.h"
#include "libkops/wire/ring.h"
#include "libkops/wire/wire.h"

#define FIRST_TRIES 10 /* half a second, with the pauses of link.c */

/* ---- Calls ---- */

/* Returns why a daemon may not know the verb; NULL: each does. *ret_known: this one knows it. */
static const char *lacks(const kops *k, Kops__V1__Request__BodyCase verb, bool *ret_known)
{
	switch (verb) {
	case KOPS__V1__REQUEST__BODY_LIST_USERS:
	case KOPS__V1__REQUEST__BODY_LIST_SESSIONS:
	case KOPS__V1__REQUEST__BODY_TRACE:
		*ret_known = k->session.lists;
		return "this kopsd is too old to list users, sessions and jobs; update it";
	case KOPS__V1__REQUEST__BODY_PUBLISH:
	case KOPS__V1__REQUEST__BODY_UNPUBLISH:
	case KOPS__V1__REQUEST__BODY_LIST_BUFFERS:
		*ret_known = k->session.names;
		return CLIENT_NO_NAMES;
	default:
		return NULL;
	}
}

/*
 * Returns true if the call must not be sent now, or at all. An older daemon would end a session that sends what
 * it does not know, so such a call waits for the Welcome.
 */
static bool hold_back(kops *k, struct call *call)
{
	bool known;
	const char *why = lacks(k, call->verb, &known);
	if (!why)
		return false;
	if (k->link.state == LINK_UP && !known)
		client_waiter_end(&call->waiter, KOPS_E_UNSUPPORTED, why, NULL);
	return k->link.state != LINK_UP || !known;
}

/* Packs most calls by hand: these verbs have at most one field, and Ping, Describe and Stats have none. */
int client_call_send(kops *k)
{
	uint8_t data[48], body[16];
	size_t len = 0, body_len = 0;
	if (!k->session.call || k->session.call->waiter.done || hold_back(k, k->session.call))
		return 0;
	k->session.call->id = client_new_id(k, CLIENT_CALL);
	if (k->session.call->request) {
		k->session.call->request->id = k->session.call->id;
		return client_send_request(k, k->session.call->request, NULL);
	}
	if (k->session.call->before) {
		body[body_len++] = MESSAGE_TAG(1, PROTOBUF_C_WIRE_TYPE_VARINT);
		body_len += message_put_varint(body + body_len, k->session.call->before);
	}
	data[len++] = MESSAGE_TAG(1, PROTOBUF_C_WIRE_TYPE_VARINT);
	len += message_put_varint(data + len, k->session.call->id);
	len += message_put_varint(data + len,
	                          (uint64_t)k->session.call->verb << 3 | PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED);
	data[len++] = (uint8_t)body_len;
	memcpy(data + len, body, body_len);
	return client_send(k, data, len + body_len, NULL, NULL);
}

/* ---- Losing the connection ---- */

/*
 * Closes the connection. Requests in flight count as unsent only after client_job_unsend(). Returns true if
 * a daemon that welcomed this connection went without announcing a stop. Before its Welcome a daemon runs
 * nothing.
 */
static bool disconnect(kops *k)
{
	bool was_welcome = k->session.hello == 0;
	client_outbox_clear(k);
	client_ring_close(k);
	bool died = client_link_close(k) && was_welcome;
	client_job_unprepare(k);
	k->session.hello = 0;
	if (k->session.call)
		k->session.call->id = 0;
	client_buffer_forget_requests(k, died);
	return died;
}

static bool is_wanted(const kops *k)
{
	return !links_is_empty(&k->jobs.out) || k->session.call || k->session.greeting ||
	       client_buffer_is_awaited(k);
}

static void lose(kops *k)
{
	client_session_take_ends(k); /* take what the daemon had finished */
	bool died = disconnect(k);
	if (k->link.closed_here)
		client_buffer_distrust(k);
	client_job_unsend(k, died);
	client_job_end_doomed(k);
	client_buffer_end_doomed(k);
	if (is_wanted(k))
		client_link_want(k);
	else
		k->link.give_up_us = CLIENT_NEVER;
}

static void give_up(kops *k, int status, const char *why)
{
	if (k->link.state != LINK_DOWN)
		lose(k);
	k->link.give_up_us = CLIENT_NEVER;
	k->session.lost_status = client_fail(k, status, "%s", why);
	client_waiter_end(k->session.greeting, status, why, NULL);
	if (k->session.call)
		client_waiter_end(&k->session.call->waiter, status, why, NULL);
	client_buffer_fail(k, status, why);
	client_job_fail(k, status, why);
}

/* The ring goes first: an end that is taken from now on would be of a job whose output is no longer ours. */
static void violation(kops *k, const char *phrase)
{
	char why[CLIENT_WHY_BYTES];
	snprintf(why, sizeof why, "protocol violation between kopsd and libkops: %s", phrase);
	client_ring_close(k);
	client_buffer_distrust(k);
	give_up(k, KOPS_E_PROTOCOL, why);
}

bool client_session_take_ends(kops *k)
{
	struct ring_end end;
	const char *phrase = NULL;
	bool any = false;

	while (!phrase && client_ring_next(k, &end, &phrase)) {
		any = true;
		phrase = client_job_ended_by_ring(k, &end);
		if (client_is_copy(k)) /* a callback forked */
			return true;
	}
	if (phrase)
		violation(k, phrase);
	return any || phrase;
}

/* ---- Connecting ---- */

static int send_hello(kops *k)
{
	Kops__V1__Hello hello = KOPS__V1__HELLO__INIT;
	Kops__V1__Request request = KOPS__V1__REQUEST__INIT;
	hello.version_min = hello.version_max = CLIENT_VERSION;
	hello.client = k->session.name;
	request.id = k->session.hello = client_new_id(k, CLIENT_CALL);
	request.body_case = KOPS__V1__REQUEST__BODY_HELLO;
	request.hello = &hello;
	return client_send_request(k, &request, NULL);
}

static int send_jobs(kops *k)
{
	for (struct links *at = k->jobs.out.next; at != &k->jobs.out; at = at->next) {
		int status = client_job_send(LINKS_ENTRY(at, kops_job, out));
		if (status < 0)
			return status;
	}
	return 0;
}

int client_session_connect(kops *k, int64_t until_us)
{
	int status = client_link_open(k, until_us);
	if (status < 0)
		return status;
	status = client_link_change_number(k);
	if (status == 0)
		status = send_hello(k);
	if (status == 0)
		status = client_buffer_restore(k);
	if (status == 0)
		status = send_jobs(k);
	if (status == 0)
		status = client_call_send(k);
	if (status < 0) {
		snprintf(k->link.why, sizeof k->link.why, "%s", k->error);
		client_link_broken(k);
		return status;
	}
	client_buffer_drop_freed(k);
	return 0;
}

/* Sends a call that waited to know what this daemon supports. */
static void send_call(kops *k)
{
	int status = k->session.call && !k->session.call->id ? client_call_send(k) : 0;
	if (status < 0)
		client_waiter_end(&k->session.call->waiter, status, k->error, NULL);
}

/*
 * Returns true if the refusal may pass. A daemon that cannot start refuses until its settings are corrected.
 * When there are too many sessions, a handle that was welcome before retries as long as for a daemon. A new
 * handle retries for half a second, as another session may just have ended.
 */
static bool is_worth_another_try(const kops *k, const Kops__V1__Reply *reply)
{
	if (reply->id == 0 && reply->status != KOPS_E_SHUTDOWN)
		return k->session.daemon[0] || k->link.attempts < FIRST_TRIES;
	return reply->status == KOPS_E_SHUTDOWN || reply->status == KOPS_E_BUSY;
}

static void welcomed(kops *k, const Kops__V1__Reply *reply)
{
	k->session.hello = 0;
	if (k->link.state == LINK_BROKEN) /* the daemon died since */
		return;
	client_link_up(k);
	snprintf(k->session.daemon, sizeof k->session.daemon, "%s", reply->welcome->daemon);
	if (reply->welcome->max_ops > 0)
		k->jobs.ops_max = reply->welcome->max_ops;
	k->jobs.instances = reply->welcome->instances;
	k->jobs.prepares = reply->welcome->prepares;
	k->session.lists = reply->welcome->lists;
	k->session.names = reply->welcome->names;
	k->ring.limit =
	    reply->welcome->ring_entries < RING_ENTRIES_MAX ? reply->welcome->ring_entries : RING_ENTRIES_MAX;
	client_waiter_end(k->session.greeting, 0, NULL, reply);
	send_call(k);
}

static void answered(kops *k, const Kops__V1__Reply *reply)
{
	char why[CLIENT_WHY_BYTES];
	if (is_worth_another_try(k, reply)) {
		snprintf(k->link.why, sizeof k->link.why, "kopsd refuses new connections: %s", reply->message);
		client_job_refused(k);
		lose(k);
	} else if (reply->status < 0) {
		snprintf(why, sizeof why, "kopsd refused the connection: %s", reply->message);
		give_up(k, reply->status, why);
	} else if (reply->body_case != KOPS__V1__REPLY__BODY_WELCOME) {
		give_up(k, KOPS_E_PROTOCOL, "kopsd answered Hello without Welcome");
	} else if (reply->welcome->version != CLIENT_VERSION) {
		snprintf(why, sizeof why, "kopsd chose protocol version %u, this libkops supports %d",
		         reply->welcome->version, CLIENT_VERSION);
		give_up(k, KOPS_E_VERSION, why);
	} else {
		welcomed(k, reply);
	}
}

/* ---- Replies ---- */

static void call_answered(kops *k, const Kops__V1__Reply *reply)
{
	if (!k->session.call || k->session.call->id != reply->id)
		return; /* the caller gave up waiting */
	if (reply->status == KOPS_E_SHUTDOWN) {
		k->session.call->id = 0;
		client_link_drain(k);
		return;
	}
	k->link.pause_us = 0;
	client_waiter_end(&k->session.call->waiter, reply->status, reply->message, reply);
}

/* Returns a phrase when the daemon broke the protocol. */
static const char *dispatch(kops *k, const Kops__V1__Reply *reply, int *fds, unsigned n_fds)
{
	if (reply->body_case == KOPS__V1__REPLY__BODY_WOKEN && k->ring.memory) {
		client_session_take_ends(k);
		return NULL;
	}
	if (reply->id == 0 && reply->status < 0) {
		if (!k->session.hello)
			return reply->message[0] ? reply->message : "kopsd gave no reason";
		answered(k, reply); /* there are too many sessions: Hello was not read */
		return NULL;
	}
	if (reply->id == 0 || reply->id >> CLIENT_KIND_BITS > k->wire.sequence)
		return "a reply to an unknown request";
	if (reply->status > 0)
		return "a positive status";
	if (reply->id == k->session.hello) {
		answered(k, reply);
		return NULL;
	}
	if (k->link.state == LINK_GREETING)
		return "a reply before the one to Hello";
	switch (reply->id & ((1 << CLIENT_KIND_BITS) - 1)) {
	case CLIENT_JOB:
		return client_job_answered(k, reply);
	case CLIENT_BUFFER:
		return client_buffer_answered(k, reply, fds, n_fds);
	case CLIENT_CALL:
		call_answered(k, reply);
		return NULL;
	default:
		if (client_publish_answered(k, reply))
			return NULL;
		return reply->id == k->ring.request && !k->ring.memory
		           ? client_ring_answered(k, reply, fds, n_fds)
		           : NULL;
	}
}

static bool is_in_flight(const kops *k)
{
	return client_job_is_in_flight(k) || (k->session.call && k->session.call->id) ||
	       client_buffer_is_in_flight(k);
}

static void handle_datagram(kops *k, size_t len, int *fds, unsigned n_fds)
{
	const char *phrase = NULL;
	const Kops__V1__Reply *reply = (const Kops__V1__Reply *)message_unpack(
	    &kops__v1__reply__descriptor, k->wire.data, len, MESSAGE_UNKNOWN_ALLOWED, &k->wire.arena, &phrase);
	if (reply)
		phrase = dispatch(k, reply, fds, n_fds);
	for (unsigned i = 0; i < n_fds; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	if (phrase)
		violation(k, phrase);
	else if (k->link.draining && !is_in_flight(k))
		lose(k);
}

bool client_session_receive(kops *k, bool block)
{
	int fds[MESSAGE_FDS_ROOM];
	unsigned n_fds = 0;
	size_t len = 0;
	if (!client_link_has_socket(k)) {
		lose(k);
		return true;
	}
	int status = client_wire_receive(k, block, &len, fds, &n_fds);
	k->wire.fds_lost = status == KOPS_E_NOMEM;
	if (status == 0 || k->wire.fds_lost) {
		handle_datagram(k, len, fds, n_fds);
		return true;
	}
	if (status == KOPS_E_BUSY && k->link.state != LINK_BROKEN)
		return false;
	if (status == KOPS_E_PROTOCOL) {
		violation(k, "a reply over the size limit");
		return true;
	}
	if (status == KOPS_E_CONNECT && k->link.state != LINK_BROKEN) {
		client_link_broken(k); /* earlier replies may lie behind an ECONNRESET */
		return true;
	}
	snprintf(k->link.why, sizeof k->link.why,
	         "kopsd closed the connection; see its log (journalctl -u kopsd)");
	lose(k);
	return true;
}

/* ---- Timers ---- */

static void too_late(kops *k)
{
	char why[CLIENT_WHY_BYTES], seconds[DECIMAL_BYTES];
	if (k->link.state == LINK_GREETING) {
		snprintf(why, sizeof why,
		         "kopsd at %s did not answer within %u ms; it may hang or fail to start (systemctl "
		         "status kopsd)%s%.250s",
		         k->link.address.sun_path, k->timeout_ms,
		         k->link.attempts > 1 ? "; the previous attempt: " : "",
		         k->link.attempts > 1 ? k->link.why : "");
		give_up(k, k->session.greeting ? KOPS_E_TIMEOUT : KOPS_E_CONNECT, why);
	} else {
		snprintf(why, sizeof why,
		         "cannot reach kopsd at %s: tried %u times in %s s, the last time: %.250s",
		         k->link.address.sun_path, k->link.attempts,
		         decimal_write(seconds, k->timeout_ms / 1000.0), k->link.why);
		give_up(k, KOPS_E_CONNECT, why);
	}
}

bool client_session_tick(kops *k, int64_t now_us, int64_t until_us)
{
	int64_t next = client_link_next_us(k);
	if (next == CLIENT_NEVER || k->link.state == LINK_BROKEN || now_us < next)
		return false;
	client_job_end_doomed(k);
	if (client_is_copy(k)) /* a callback forked */
		return true;
	if (now_us >= k->link.give_up_us)
		too_late(k);
	else if (k->link.state == LINK_DOWN && is_wanted(k))
		client_session_connect(k, until_us < k->link.give_up_us ? until_us : k->link.give_up_us);
	else if (k->link.state == LINK_DOWN)
		k->link.give_up_us = CLIENT_NEVER;
	return true;
}
