/* verb/hello.c: Hello: the protocol's version and the client's name. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/peer.h"
#include "log.h"
#include "session/reply.h"
#include "session/verbs.h"

#define VERSION_SPOKEN  1
#define CLIENT_NAME_MAX 64

int verb_hello(struct request *r)
{
	const Kops__V1__Hello *hello = r->msg->hello;
	struct session *session = r->session;
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	Kops__V1__Welcome welcome = KOPS__V1__WELCOME__INIT;

	if (hello->version_min > VERSION_SPOKEN || hello->version_max < VERSION_SPOKEN) {
		snprintf(r->why, sizeof r->why,
		         "kopsd %s speaks protocol version %d, the client %u to %u; update the older one",
		         KOPS_VERSION, VERSION_SPOKEN, hello->version_min, hello->version_max);
		return KOPS_E_VERSION;
	}
	if (strlen(hello->client) > CLIENT_NAME_MAX) {
		snprintf(r->why, sizeof r->why, "the client's name has more than %d bytes", CLIENT_NAME_MAX);
		return KOPS_E_INVALID;
	}
	snprintf(session->client, sizeof session->client, "%s", hello->client);
	if (!*session->client)
		peer_read_name(session->pid, session->client);
	session->state = SESSION_OPEN;
	uv_timer_stop(&session->hello_timer);
	log_debug("session %" PRIu64 ": hello from \"%s\"", session->serial, session->client);

	welcome.version = VERSION_SPOKEN;
	welcome.daemon = (char *)"kopsd " KOPS_VERSION;
	welcome.max_datagram_bytes = MESSAGE_BYTES_MAX;
	welcome.max_ops = MESSAGE_OPS_MAX;
	welcome.max_buffers = session->engine->config->max_buffers;
	welcome.max_jobs = session->engine->config->max_jobs;
	welcome.prepares = true;
	welcome.ring_entries = RING_ENTRIES_MAX;
	welcome.lists = true;
	welcome.instances = true;
	welcome.names = true;
	reply.id = r->id;
	reply.body_case = KOPS__V1__REPLY__BODY_WELCOME;
	reply.welcome = &welcome;
	reply_send(session, &reply, -1);
	return 0;
}
