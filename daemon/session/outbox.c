#include "session/outbox.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "message.h"

struct outbox_reply {
	struct list_link link; /* in outbox.waiting */
	int fd;                /* -1: none */
	size_t bytes;
	uint8_t data[];
};

void outbox_init(struct outbox *box)
{
	box->waiting = (struct list){0};
	box->unread = NULL;
}

/* ---- Waiting replies ---- */

/* Makes a reply with a duplicate of the descriptor. */
static struct outbox_reply *reply_new(const uint8_t *data, size_t bytes, int fd, int *ret_rc)
{
	struct outbox_reply *reply = malloc(sizeof *reply + bytes);

	*ret_rc = KOPS_E_NOMEM;
	if (!reply)
		return NULL;
	reply->link = (struct list_link){0};
	reply->bytes = bytes;
	memcpy(reply->data, data, bytes);
	reply->fd = fd >= 0 ? dup(fd) : -1;
	if (fd < 0 || reply->fd >= 0)
		return reply;
	*ret_rc = KOPS_E_QUOTA;
	free(reply);
	return NULL;
}

int outbox_keep(struct outbox *box, const uint8_t *data, size_t bytes, int fd)
{
	struct outbox_reply *reply;
	int rc;

	if (!account_leave_unread(box->accounts, box->account, sizeof *reply + bytes))
		return KOPS_E_NOMEM;
	reply = reply_new(data, bytes, fd, &rc);
	if (!reply) {
		account_was_read(box->accounts, box->account, sizeof *reply + bytes);
		return rc;
	}
	list_push_last(&box->waiting, &reply->link);
	if (fd >= 0)
		box->unread->kept++;
	return 0;
}

void outbox_drop(struct outbox *box)
{
	struct outbox_reply *reply = list_take(&box->waiting, struct outbox_reply, link);

	account_was_read(box->accounts, box->account, sizeof *reply + reply->bytes);
	if (reply->fd >= 0) {
		box->unread->kept--;
		close(reply->fd);
	}
	free(reply);
}

/* ---- Sending ---- */

static int send_now(struct outbox *box, const uint8_t *data, size_t bytes, int fd)
{
	struct slow_call call;
	int rc;

	if (slow_is_held(box->account))
		return KOPS_E_BUSY;
	call = slow_begin(box->account, clock_ns());
	rc = message_send(box->sock, data, bytes, &fd, fd >= 0);
	slow_end(box->slow, box->account, &call);
	return rc;
}

int outbox_send(struct outbox *box, const uint8_t *data, size_t bytes, int fd)
{
	int rc;

	if (fd >= 0 && !unread_add(box->unreads, &box->unread, box->account, box->sock))
		return KOPS_E_QUOTA;
	rc = outbox_is_empty(box) ? send_now(box, data, bytes, fd) : KOPS_E_BUSY;
	if (rc == KOPS_E_BUSY) {
		rc = outbox_keep(box, data, bytes, fd);
		if (rc == 0)
			return KOPS_E_BUSY;
	}
	if (fd >= 0 && rc < 0)
		unread_take_back(box->unreads, box->unread);
	return rc;
}

int outbox_flush(struct outbox *box)
{
	const struct outbox_reply *reply;

	while ((reply = list_first(&box->waiting, struct outbox_reply, link))) {
		int rc = send_now(box, reply->data, reply->bytes, reply->fd);

		if (rc < 0)
			return rc;
		outbox_drop(box);
	}
	return 0;
}
