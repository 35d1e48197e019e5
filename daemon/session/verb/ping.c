/* verb/ping.c: Ping: reports health, by recent canaries. */
#include <stdio.h>

#include "session/reply.h"
#include "session/verbs.h"

/* Fields of proto/kops.proto that are written by hand: packing a reply took a third of a Ping's time. */
#define TAG_REPLY_ID     MESSAGE_TAG(1, PROTOBUF_C_WIRE_TYPE_VARINT)
#define TAG_REPLY_PONG   MESSAGE_TAG(10, PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED)
#define TAG_PONG_DEVICES MESSAGE_TAG(1, PROTOBUF_C_WIRE_TYPE_VARINT)

_Static_assert(SCHED_DEVICES_MAX < 128, "their number is one byte of a Pong");

/* A canary no older than this answers a Ping at once. */
#define CANARY_FRESH_NS 1000000000u

static void answer_ping(struct session *session, uint64_t id)
{
	const struct engine *e = session->engine;
	const struct device *sick = engine_sick_device(e);
	uint8_t data[5 + MESSAGE_VARINT_MAX], *at = data;
	char why[WHY_BYTES];

	if (sick) {
		snprintf(why, sizeof why, "device %s failed its last self-check; see kopsd's log", sick->name);
		reply_error(session, id, KOPS_E_FAULT, why, 0);
		return;
	}
	*at++ = TAG_REPLY_ID;
	at += message_put_varint(at, id);
	*at++ = TAG_REPLY_PONG;
	*at++ = 2; /* bytes */
	*at++ = TAG_PONG_DEVICES;
	*at++ = (uint8_t)e->n_devices;
	session_send(session, data, (size_t)(at - data), -1);
}

/* A busy device is judged by its work; an idle one needs a recent canary. */
static bool needs_canary(const struct device *d)
{
	return d->runs_out == 0 && device_canary_age_ns(d) > CANARY_FRESH_NS;
}

int verb_ping(struct request *r)
{
	struct session *s = r->session;
	struct engine *e = s->engine;
	bool wait = false;

	for (unsigned i = 0; i < e->n_devices; i++)
		if (needs_canary(e->devices[i].device)) {
			device_start_canary(e->devices[i].device);
			wait |= e->devices[i].device->canary_out;
		}
	e->watch_runs(e);
	if (wait)
		return questions_add(&s->pings, r->id);
	answer_ping(s, r->id);
	return 0;
}

static bool canaries_are_out(const struct askers *pings)
{
	const struct engine *e = pings->engine;

	for (unsigned i = 0; i < e->n_devices; i++)
		if (e->devices[i].device->canary_out)
			return true;
	return false;
}

void pings_init(struct sessions *all)
{
	all->pings = (struct askers){.engine = all->engine, .is_out = canaries_are_out, .answer = answer_ping};
}

void sessions_canaries_back(struct sessions *all)
{
	questions_answer(&all->pings);
}
