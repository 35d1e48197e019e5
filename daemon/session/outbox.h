/*
 * outbox.h: replies to one client. What the socket does not take waits here, and counts towards the user's
 * max-unread-per-uid. Loop thread only.
 */
#ifndef KOPS_OUTBOX_H
#define KOPS_OUTBOX_H

#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "share/account.h"
#include "share/slow.h"
#include "share/unread.h"

struct outbox {
	struct accounts *accounts;
	struct slow *slow;
	struct unreads *unreads;
	struct account *account;
	int sock;
	struct list waiting;   /* replies */
	struct unread *unread; /* NULL: the client has read all descriptors, as far as is known */
};

/* Returns true if everything was sent. */
static inline bool outbox_is_empty(const struct outbox *box)
{
	return list_is_empty(&box->waiting);
}

/* Initializes the outbox. accounts, slow, unreads, account and sock are set, and stay the caller's. */
void outbox_init(struct outbox *box);

/*
 * Sends a packed reply, with a descriptor (-1: none) that is duplicated if the reply must wait. Returns 0 if it
 * was sent, KOPS_E_BUSY if it waits. KOPS_E_QUOTA: too many descriptors are unread or open, which is not this
 * client's fault. Other errors: the client is gone, or leaves too much unread.
 */
int outbox_send(struct outbox *box, const uint8_t *data, size_t bytes, int fd);

/* Queues a reply without trying to send it. 0, KOPS_E_NOMEM, or KOPS_E_QUOTA as above. */
int outbox_keep(struct outbox *box, const uint8_t *data, size_t bytes, int fd);

/* Sends what waits. 0: nothing is left; KOPS_E_BUSY: something is. Other errors: the client is gone. */
int outbox_flush(struct outbox *box);

/* Drops the first waiting reply. */
void outbox_drop(struct outbox *box);

#endif
