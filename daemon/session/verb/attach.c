/* verb/attach.c: Attach: makes a published buffer one of the session's. */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "job/memory/published.h"
#include "session/reply.h"
#include "session/verb/buffers.h"
#include "session/verbs.h"

/* Names that do not exist, and those that the session must not know of, take the same time and get the same
 * answer. */
static int find_for(struct request *r, struct published **ret)
{
	const Kops__V1__Attach *attach = r->msg->attach;
	struct published *p =
	    published_find(accounts_find(&r->session->engine->accounts, attach->user), attach->name);
	struct peer peer;
	int rc = session_read_peer(r->session, &peer, r->why);
	bool may;

	if (rc < 0)
		return rc;
	may = p && published_is_for(p, &peer);
	peer_free(&peer);
	if (may) {
		*ret = p;
		return 0;
	}
	snprintf(
	    r->why, sizeof r->why,
	    "uid %u has published no buffer \"%.100s\" that you may attach; `kops-client buffers` lists those",
	    attach->user, attach->name);
	return KOPS_E_NOT_FOUND;
}

static int answer(struct request *r, const struct published *p)
{
	const struct buffer *source = p->buffer;
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	Kops__V1__Attached attached = KOPS__V1__ATTACHED__INIT;
	int fd = -1, rc;

	attached.bytes = source->memory.bytes;
	if (source->device) {
		attached.kind = KOPS__V1__BUFFER_KIND__RESIDENT;
		attached.device = (char *)source->device->name;
	} else {
		fd = buffer_open_for_reading(source);
		if (fd < 0)
			return fd;
	}
	reply_put_shape(&p->shape, &attached.dtype, &attached.n_shape, &attached.shape);
	reply.id = r->id;
	reply.body_case = KOPS__V1__REPLY__BODY_ATTACHED;
	reply.attached = &attached;
	rc = reply_send(r->session, &reply, fd);
	if (fd >= 0)
		close(fd);
	return rc;
}

int verb_attach(struct request *r)
{
	const Kops__V1__Attach *attach = r->msg->attach;
	struct session *session = r->session;
	struct published *published = NULL;
	struct buffer *buffer;
	int rc = buffers_may_add(r, attach->buffer, 1);

	if (rc == 0)
		rc = find_for(r, &published);
	if (rc < 0)
		return rc;
	if (attach->bytes && attach->bytes != published->buffer->memory.bytes) {
		snprintf(r->why, sizeof r->why,
		         "\"%.100s\" was published again with %" PRIu64 " bytes instead of %" PRIu64
		         "; drop the buffer, and attach it again",
		         attach->name, published->buffer->memory.bytes, attach->bytes);
		return KOPS_E_LOST;
	}
	buffer = buffer_attach(published->buffer, session->account);
	if (!buffer)
		return KOPS_E_NOMEM;
	rc = buffers_add(r, attach->buffer, buffer);
	if (rc < 0)
		return rc;
	rc = answer(r, published);
	if (rc == 0)
		return 0;
	buffers_remove(session, buffer);
	snprintf(r->why, sizeof r->why, "%s", unread_why);
	return rc;
}
