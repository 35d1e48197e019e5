/* verb/drop.c: Drop: releases a buffer. The answer follows when its memory no longer counts. */
#include <inttypes.h>
#include <stdio.h>

#include "job/prepared.h"
#include "session/reply.h"
#include "session/verb/buffers.h"
#include "session/verbs.h"

/* Called when the buffer's memory is released. */
static void gone(struct buffer *buffer)
{
	struct session *session = buffer->drop_session;

	list_remove(&buffer->dropped);
	session->n_dropped--;
	reply_ok(session, buffer->drop_request);
}

static void await(struct request *r, struct buffer *buffer)
{
	buffer->gone = gone;
	buffer->drop_session = r->session;
	buffer->drop_request = r->id;
	list_push_first(&r->session->dropped, &buffer->dropped);
	r->session->n_dropped++;
}

int verb_drop(struct request *r)
{
	struct buffer *buffer = buffers_take(r->session, r->msg->drop->buffer);

	if (!buffer) {
		snprintf(r->why, sizeof r->why, "there is no buffer %" PRIu64, r->msg->drop->buffer);
		return KOPS_E_NOT_FOUND;
	}
	if (buffer_is_frozen(buffer)) /* others may keep it for as long as they like */
		reply_ok(r->session, r->id);
	else
		await(r, buffer);
	prepared_drop_buffer(buffer);
	return 0;
}
