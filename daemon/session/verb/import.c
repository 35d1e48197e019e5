/* verb/import.c: Import: memory of the client's becomes a buffer. */
#include <stdio.h>

#include "session/buffers.h"
#include "session/reply.h"
#include "session/verbs.h"

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
	rc = buffers_may_add(r, import->buffer, import->bytes);
	if (rc < 0)
		return rc;
	fd = r->fds[0];
	r->fds[0] = -1;
	rc = buffer_import(session->engine, session->account, fd, import->bytes, import->read_only, &buffer,
	                   r->why);
	if (rc < 0)
		return rc;
	rc = buffers_add(r, import->buffer, buffer);
	if (rc == 0)
		reply_ok(session, r->id);
	return rc;
}
