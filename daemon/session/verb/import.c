/* verb/import.c: Import: makes a client's memory a buffer. */
#include <stdio.h>
#include <string.h>

#include "session/reply.h"
#include "session/verb/buffers.h"
#include "session/verbs.h"

/* Checks again, because other sessions of the user may have changed its use. */
static int import(struct request *r)
{
	const Kops__V1__Import *import = r->msg->import;
	struct session *session = r->session;
	struct buffer *buffer;
	int rc = buffers_may_add(r, import->buffer, import->bytes), fd = r->import_fd;

	if (rc < 0)
		return rc;
	r->import_fd = -1;
	rc = buffer_import(session->engine, session->account, fd, import->bytes, import->read_only, &buffer,
	                   r->why);
	if (rc < 0)
		return rc;
	session->account->receives.is_known = true;
	rc = buffers_add(r, import->buffer, buffer);
	if (rc == 0)
		reply_ok(session, r->id);
	return rc;
}

static int make_room_for_import(struct request *r)
{
	const struct session *s = r->session;

	if (buffer_is_kept(s->engine, s->account, r->import_fd) ||
	    !buffers_look_for_room(r, r->msg->import->bytes))
		return import(r);
	r->next = make_room_for_import;
	return 0;
}

int verb_import(struct request *r)
{
	const Kops__V1__Import *import = r->msg->import;
	struct received *came = &r->received;
	int rc;

	if (came->why) {
		snprintf(r->why, sizeof r->why, "%s", came->why);
		return KOPS_E_QUOTA;
	}
	if (came->lost) {
		snprintf(r->why, sizeof r->why,
		         "kopsd is out of file descriptors; try again later, or have LimitNOFILE raised");
		return KOPS_E_NOMEM;
	}
	if (came->n_fds != 1) {
		snprintf(r->why, sizeof r->why, "Import expects one descriptor, got %u", came->n_fds);
		return KOPS_E_FD;
	}
	rc = buffers_may_add(r, import->buffer, import->bytes);
	if (rc < 0)
		return rc;
	if (came->fd < 0) {
		snprintf(r->why, sizeof r->why,
		         "the descriptor is not a memfd (%s); make one with memfd_create()",
		         strerror(came->error));
		return KOPS_E_FD;
	}
	r->import_fd = came->fd;
	came->fd = -1;
	r->looks = r->session->account->kept.n;
	return make_room_for_import(r);
}
