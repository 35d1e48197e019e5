/* verb/drop.c: Drop: a buffer is given back. The answer follows when its memory no longer counts. */
#include <inttypes.h>
#include <stdio.h>

#include "job/prepared.h"
#include "session/buffers.h"
#include "session/reply.h"
#include "session/verbs.h"

static void unlist(struct session *session, struct buffer *buffer)
{
	*buffer->dropped_link = buffer->next_dropped;
	if (buffer->next_dropped)
		buffer->next_dropped->dropped_link = buffer->dropped_link;
	session->n_dropped--;
}

/* Its memory is given back. */
static void gone(struct buffer *buffer)
{
	struct session *session = buffer->drop_session;

	unlist(session, buffer);
	reply_ok(session, buffer->drop_request);
}

static void list(struct session *session, struct buffer *buffer)
{
	buffer->next_dropped = session->dropped;
	buffer->dropped_link = &session->dropped;
	if (buffer->next_dropped)
		buffer->next_dropped->dropped_link = &buffer->next_dropped;
	session->dropped = buffer;
	session->n_dropped++;
}

int verb_drop(struct request *r)
{
	struct buffer *buffer = buffers_take(r->session, r->msg->drop->buffer);

	if (!buffer) {
		snprintf(r->why, sizeof r->why, "there is no buffer %" PRIu64, r->msg->drop->buffer);
		return KOPS_E_NOT_FOUND;
	}
	buffer->gone = gone;
	buffer->drop_session = r->session;
	buffer->drop_request = r->id;
	list(r->session, buffer);
	prepared_drop_buffer(buffer);
	return 0;
}
