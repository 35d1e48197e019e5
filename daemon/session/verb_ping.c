/* verb_ping.c: health, by canaries that are fresh. */
#include <stdio.h>
#include <stdlib.h>

#include "server.h"
#include "session/reply.h"
#include "session/request.h"
#include "session/verbs.h"

struct ping {
	struct ping *next;
	struct session *session;
	uint64_t id;
};

/* A canary no older than this answers a Ping at once. */
#define CANARY_FRESH_NS 1000000000u

static void answer_ping(struct session *session, uint64_t id)
{
	const struct server *server = session->server;
	const struct device *sick = server_sick_device(server);
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	Kops__V1__Pong pong = KOPS__V1__PONG__INIT;
	char why[WHY_BYTES];

	if (sick) {
		snprintf(why, sizeof why, "device %s does not answer its canary job rightly; see kopsd's log",
		         device_name(sick));
		reply_error(session, id, KOPS_E_FAULT, why, 0);
		return;
	}
	pong.devices = server->n_devices;
	reply.id = id;
	reply.body_case = KOPS__V1__REPLY__BODY_PONG;
	reply.pong = &pong;
	reply_send(session, &reply, -1);
}

/* A device at work is judged by its work; an idle one by a canary that is fresh or has to be. */
static bool needs_canary(const struct device *d)
{
	return device_runs_out(d) == 0 && device_canary_age_ns(d) > CANARY_FRESH_NS;
}

int verb_ping(struct request *r)
{
	struct server *server = r->session->server;
	struct ping *ping;
	bool wait = false;

	for (unsigned i = 0; i < server->n_devices; i++)
		if (needs_canary(server->devices[i])) {
			device_start_canary(server->devices[i]);
			wait |= device_canary_is_out(server->devices[i]);
		}
	server_watch_runs(server);
	if (!wait) {
		answer_ping(r->session, r->msg->id);
		return 0;
	}
	ping = calloc(1, sizeof *ping);
	if (!ping)
		return KOPS_E_NOMEM;
	ping->session = r->session;
	ping->id = r->msg->id;
	ping->next = server->pings;
	server->pings = ping;
	return 0;
}

void request_canaries_back(struct server *server)
{
	struct ping *ping = server->pings, *next;

	for (unsigned i = 0; i < server->n_devices; i++)
		if (device_canary_is_out(server->devices[i]))
			return;
	server->pings = NULL;
	for (; ping; ping = next) {
		next = ping->next;
		answer_ping(ping->session, ping->id);
		free(ping);
	}
}

void request_forget(struct session *session)
{
	for (struct ping **link = &session->server->pings, *ping; (ping = *link);) {
		if (ping->session != session) {
			link = &ping->next;
			continue;
		}
		*link = ping->next;
		free(ping);
	}
}
