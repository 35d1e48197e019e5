/* verb/alloc.c: Alloc: makes memory, SHARED or RESIDENT. The answer may come later. */
#include <stdio.h>
#include <unistd.h>

#include "session/reply.h"
#include "session/verb/buffers.h"
#include "session/verbs.h"

static int send_lent(struct session *session, uint64_t request, const struct buffer *buffer)
{
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	Kops__V1__Lent lent = KOPS__V1__LENT__INIT;
	int fd = -1, rc;

	lent.bytes = buffer->memory.bytes;
	if (buffer->device)
		lent.device = (char *)buffer->device->name;
	reply.id = request;
	reply.body_case = KOPS__V1__REPLY__BODY_LENT;
	reply.lent = &lent;
	if (buffer->segment) {
		fd = pool_open_for_client(buffer->segment);
		if (fd < 0)
			return fd;
	}
	rc = reply_send(session, &reply, fd);
	if (fd >= 0)
		close(fd);
	return rc;
}

/* Answers an Alloc whose buffer is READY. */
static void answer_alloc(struct session *session, uint64_t request, struct buffer *buffer)
{
	int rc = send_lent(session, request, buffer);

	if (rc == 0)
		return;
	buffers_remove(session, buffer);
	reply_error(session, request, rc, unread_why, 0);
}

/* Called when the buffer is made, or cannot be. */
static void settled(struct buffer *buffer)
{
	struct session *session = buffer->session;
	uint64_t request = buffer->request;

	list_remove(&buffer->pending);
	buffer->settled = NULL;
	buffer->session = NULL;
	if (buffer->state == BUFFER_READY) {
		answer_alloc(session, request, buffer);
		return;
	}
	buffers_remove(session, buffer);
	reply_error(session, request, buffer->failure, buffer->why, 0);
}

static int make_buffer(struct request *r, struct buffer **ret_buffer)
{
	const Kops__V1__Alloc *alloc = r->msg->alloc;
	struct session *session = r->session;
	struct device *device;
	int rc;

	if (alloc->kind == KOPS__V1__BUFFER_KIND__SHARED)
		return buffer_lend(session->engine, session->account, alloc->bytes, ret_buffer, r->why);
	if (alloc->kind != KOPS__V1__BUFFER_KIND__RESIDENT) {
		snprintf(r->why, sizeof r->why, "invalid kind %d, expected SHARED (0) or RESIDENT (1)",
		         (int)alloc->kind);
		return KOPS_E_INVALID;
	}
	device = engine_device(session->engine, alloc->device, NULL);
	if (!device) {
		snprintf(r->why, sizeof r->why,
		         "there is no device \"%.32s\"; `kops-client devices` lists them", alloc->device);
		return KOPS_E_DEVICE;
	}
	rc = buffer_resident(session->engine, session->account, device, alloc->bytes, ret_buffer, r->why);
	if (rc == 0)
		(*ret_buffer)->lost = alloc->lost;
	return rc;
}

/* Checks again, because other sessions of the user may have changed its use. */
static int alloc(struct request *r)
{
	const Kops__V1__Alloc *alloc = r->msg->alloc;
	struct session *session = r->session;
	struct buffer *buffer;
	int rc = buffers_may_add(r, alloc->buffer, alloc->bytes);

	if (rc < 0)
		return rc;
	rc = make_buffer(r, &buffer);
	if (rc < 0)
		return rc;
	rc = buffers_add(r, alloc->buffer, buffer);
	if (rc < 0)
		return rc;
	if (buffer->state == BUFFER_PENDING) {
		buffer->settled = settled;
		buffer->session = session;
		buffer->request = r->id;
		list_push_first(&session->pending, &buffer->pending);
	} else {
		answer_alloc(session, r->id, buffer);
	}
	return 0;
}

static int make_room_for_alloc(struct request *r)
{
	uint64_t bytes = r->msg->alloc->bytes;

	if (!buffers_look_for_room(r, bytes > INT64_MAX ? bytes : pool_segment_bytes(bytes)))
		return alloc(r);
	r->next = make_room_for_alloc;
	return 0;
}

int verb_alloc(struct request *r)
{
	const Kops__V1__Alloc *alloc = r->msg->alloc;
	int rc = buffers_may_add(r, alloc->buffer, alloc->bytes);

	if (rc < 0)
		return rc;
	r->looks = alloc->kind == KOPS__V1__BUFFER_KIND__SHARED ? r->session->account->kept.n : 0;
	return make_room_for_alloc(r);
}
