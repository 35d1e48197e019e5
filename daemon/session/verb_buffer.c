/* verb_buffer.c: Import, Alloc and Drop. */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "job/buffer.h"
#include "server.h"
#include "session/reply.h"
#include "session/request.h"
#include "session/verbs.h"

static int check_buffer_counts(struct request *r)
{
	const struct session *session = r->session;
	const struct server *server = session->server;
	const struct config *c = &server->config;

	if (session->buffers.count + session->n_dropped >= c->max_buffers)
		snprintf(r->why, sizeof r->why,
		         "the session has %" PRIu64 " buffers, its limit; drop some, or raise max-buffers",
		         c->max_buffers);
	else if (session->account->buffers >= c->max_buffers_per_uid)
		snprintf(r->why, sizeof r->why,
		         "you have %u buffers, a user's limit; drop some, or raise max-buffers-per-uid",
		         session->account->buffers);
	else if (server->n_buffers >= server->n_buffers_max)
		snprintf(r->why, sizeof r->why,
		         "all users have %u buffers, half the mappings or descriptors that the kernel allows; "
		         "drop some, or raise vm.max_map_count and LimitNOFILE",
		         server->n_buffers);
	else
		return 0;
	return KOPS_E_QUOTA;
}

static int may_add_buffer(struct request *r, uint64_t id, uint64_t bytes)
{
	const struct session *session = r->session;

	if (id == 0 || bytes == 0) {
		snprintf(r->why, sizeof r->why, "a buffer needs an id and a size that are not 0");
		return KOPS_E_INVALID;
	}
	if (idmap_get(&session->buffers, id)) {
		snprintf(r->why, sizeof r->why,
		         "buffer %" PRIu64 " exists already; drop it first or choose another id", id);
		return KOPS_E_EXISTS;
	}
	return check_buffer_counts(r);
}

/* Takes over the reference. */
static int add_buffer(struct request *r, uint64_t id, struct buffer *buffer)
{
	int rc = idmap_put(&r->session->buffers, id, buffer);

	if (rc < 0) {
		buffer_unref(buffer);
		return rc;
	}
	buffer->id = id;
	return 0;
}

int verb_import(struct request *r)
{
	const Kops__V1__Import *import = r->msg->import;
	struct session *session = r->session;
	struct buffer *buffer;
	int fd, rc;

	if (r->fds_lost) {
		snprintf(r->why, sizeof r->why,
		         "kopsd has run out of file descriptors; try again later, or raise LimitNOFILE");
		return KOPS_E_NOMEM;
	}
	if (r->n_fds != 1) {
		snprintf(r->why, sizeof r->why, "Import needs one descriptor, %u came", r->n_fds);
		return KOPS_E_FD;
	}
	rc = may_add_buffer(r, import->buffer, import->bytes);
	if (rc < 0)
		return rc;
	fd = r->fds[0];
	r->fds[0] = -1;
	rc = buffer_import(session->server, session->account, fd, import->bytes, import->read_only, &buffer,
	                   r->why);
	if (rc < 0)
		return rc;
	rc = add_buffer(r, import->buffer, buffer);
	if (rc == 0)
		reply_ok(session, r->msg->id);
	return rc;
}

static int send_lent(struct session *session, uint64_t request, const struct buffer *buffer)
{
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	Kops__V1__Lent lent = KOPS__V1__LENT__INIT;
	int fd = -1, rc;

	lent.bytes = buffer->memory.bytes;
	if (buffer->device)
		lent.device = (char *)device_name(buffer->device);
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

static void remove_buffer(struct session *session, struct buffer *buffer)
{
	if (idmap_get(&session->buffers, buffer->id) != buffer)
		return; /* dropped meanwhile */
	idmap_remove(&session->buffers, buffer->id);
	buffer_unref(buffer);
}

/* Of a buffer that is READY. */
static void answer_alloc(struct session *session, uint64_t request, struct buffer *buffer)
{
	int rc = send_lent(session, request, buffer);

	if (rc == 0)
		return;
	remove_buffer(session, buffer);
	reply_error(session, request, rc,
	            "too many descriptors are open, or wait unread at clients; try again later, or raise "
	            "LimitNOFILE",
	            0);
}

void request_buffer_settled(struct buffer *buffer)
{
	struct session *session = buffer->session;
	uint64_t request = buffer->request;
	struct buffer **link = &session->pending;

	while (*link != buffer)
		link = &(*link)->next_pending;
	*link = buffer->next_pending;
	buffer->session = NULL;
	if (buffer->state == BUFFER_READY) {
		answer_alloc(session, request, buffer);
		return;
	}
	remove_buffer(session, buffer);
	reply_error(session, request, buffer->failure, buffer->why, 0);
}

void request_buffer_gone(struct buffer *buffer)
{
	struct session *session = buffer->drop_session;
	struct buffer **link = &session->dropped;

	while (*link != buffer)
		link = &(*link)->next_dropped;
	*link = buffer->next_dropped;
	session->n_dropped--;
	reply_ok(session, buffer->drop_request);
}

static int make_buffer(struct request *r, struct buffer **ret_buffer)
{
	const Kops__V1__Alloc *alloc = r->msg->alloc;
	struct session *session = r->session;
	struct device *device;
	int rc;

	if (alloc->kind == KOPS__V1__BUFFER_KIND__SHARED)
		return buffer_lend(session->server, session->account, alloc->bytes, ret_buffer, r->why);
	if (alloc->kind != KOPS__V1__BUFFER_KIND__RESIDENT) {
		snprintf(r->why, sizeof r->why, "kind %d is neither SHARED (0) nor RESIDENT (1)",
		         (int)alloc->kind);
		return KOPS_E_INVALID;
	}
	device = server_device(session->server, alloc->device, NULL);
	if (!device) {
		snprintf(r->why, sizeof r->why,
		         "there is no device \"%.32s\"; `kops-client devices` lists them", alloc->device);
		return KOPS_E_DEVICE;
	}
	rc = buffer_resident(session->server, session->account, device, alloc->bytes, ret_buffer, r->why);
	if (rc == 0)
		(*ret_buffer)->lost = alloc->lost;
	return rc;
}

int verb_alloc(struct request *r)
{
	const Kops__V1__Alloc *alloc = r->msg->alloc;
	struct session *session = r->session;
	struct buffer *buffer;
	int rc = may_add_buffer(r, alloc->buffer, alloc->bytes);

	if (rc < 0)
		return rc;
	rc = make_buffer(r, &buffer);
	if (rc < 0)
		return rc;
	rc = add_buffer(r, alloc->buffer, buffer);
	if (rc < 0)
		return rc;
	if (buffer->state == BUFFER_PENDING) {
		buffer->session = session;
		buffer->request = r->msg->id;
		buffer->next_pending = session->pending;
		session->pending = buffer;
	} else {
		answer_alloc(session, r->msg->id, buffer);
	}
	return 0;
}

int verb_drop(struct request *r)
{
	struct buffer *buffer = idmap_remove(&r->session->buffers, r->msg->drop->buffer);

	if (!buffer) {
		snprintf(r->why, sizeof r->why, "there is no buffer %" PRIu64, r->msg->drop->buffer);
		return KOPS_E_NOT_FOUND;
	}
	buffer->given_back = true;
	buffer->drop_session = r->session;
	buffer->drop_request = r->msg->id;
	buffer->next_dropped = r->session->dropped;
	r->session->dropped = buffer;
	r->session->n_dropped++;
	buffer_unref(buffer);
	return 0;
}
