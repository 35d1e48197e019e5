/* verb/drop.c: Drop: a buffer is given back. The answer follows when its memory no longer counts. */
#include <inttypes.h>
#include <stdio.h>

#include "job/prepared.h"
#include "session/buffers.h"
#include "session/reply.h"
#include "session/verbs.h"

/* Its memory is given back. */
static void gone(struct buffer *buffer)
{
	struct session *session = buffer->drop_session;
	struct buffer **link = &session->dropped;

	while (*link != buffer)
		link = &(*link)->next_dropped;
	*link = buffer->next_dropped;
	session->n_dropped--;
	reply_ok(session, buffer->drop_request);
}

int verb_drop(struct request *r)
{
	struct buffer *buffer = buffers_take(r->session, r->msg->drop->buffer);

	if (!buffer) {
		snprintf(r->why, sizeof r->why, "there is no buffer %" PRIu64, r->msg->drop->buffer);
		return KOPS_E_NOT_FOUND;
	}
	prepared_drop_buffer(buffer);
	buffer->given_back = true;
	buffer->gone = gone;
	buffer->drop_session = r->session;
	buffer->drop_request = r->id;
	buffer->next_dropped = r->session->dropped;
	r->session->dropped = buffer;
	r->session->n_dropped++;
	buffer_unref(buffer);
	return 0;
}
