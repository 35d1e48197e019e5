/* verb/ring.c: OpenRing and Wake: runs of prepared jobs by shared memory. */
#include <stdio.h>
#include <unistd.h>

#include "host_memory.h"
#include "session/reply.h"
#include "session/verbs.h"

int verb_open_ring(struct request *r)
{
	struct session *s = r->session;
	uint32_t wanted = r->msg->open_ring->entries, entries = 2;
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	Kops__V1__Ring ring = KOPS__V1__RING__INIT;
	int fd, rc;

	if (s->ring || wanted > RING_ENTRIES_MAX) {
		snprintf(r->why, sizeof r->why, "%s",
		         s->ring ? "this session already has a ring" : "a ring has at most 256 entries");
		return s->ring ? KOPS_E_EXISTS : KOPS_E_RANGE;
	}
	while (entries < wanted)
		entries *= 2;
	ring.entries = entries;
	ring.bytes = ring_bytes(entries);
	rc = host_memory_may_map(ring.bytes, r->why, sizeof r->why);
	if (rc == 0)
		rc = account_charge(&s->engine->accounts, s->account, ACCOUNT_MAPPED, ring.bytes, r->why);
	if (rc < 0)
		return rc;
	rc = ring_new(&s->all->rings, s, entries, &s->ring, &fd, r->why);
	if (rc < 0) {
		account_refund(&s->engine->accounts, s->account, ACCOUNT_MAPPED, ring.bytes);
		return rc;
	}
	reply.id = r->id;
	reply.body_case = KOPS__V1__REPLY__BODY_RING;
	reply.ring = &ring;
	rc = reply_send(s, &reply, fd);
	close(fd);
	if (rc < 0) {
		session_close_ring(s);
		snprintf(r->why, sizeof r->why, "%s", unread_why);
	}
	return rc;
}

/* Answered only if the session has no ring. */
int verb_wake(struct request *r)
{
	if (!r->session->ring) {
		snprintf(r->why, sizeof r->why, "this session has no ring to wake; send OpenRing first");
		return KOPS_E_NOT_FOUND;
	}
	ring_awaken(r->session->ring);
	return 0;
}
