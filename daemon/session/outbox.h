/*
 * outbox.h: replies on their way to one client. What the socket does not take waits here, and counts against
 * its user's max-unread-per-uid. Loop thread only.
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
	struct unread *unread; /* NULL: it has read all descriptors, as far as we know */
};

/* Whether everything was sent. */
static inline bool outbox_is_empty(const struct outbox *box)
{
	return list_is_empty(&box->waiting);
}

/* accounts, slow, unreads, account and sock are set; they stay the caller's. */
void outbox_init(struct outbox *box);

/*
 * A packed reply, with a descriptor of which a copy is made if it must wait (-1: none). 0: it is sent;
 * KOPS_E_BUSY: it waits; KOPS_E_QUOTA: too many descriptors are under way or open, which is no fault of this
 * client's. Else the client is gone, or leaves too much unread.
 */
int outbox_send(struct outbox *box, const uint8_t *data, size_t bytes, int fd);

/* Without a look at the socket. 0, KOPS_E_NOMEM, or KOPS_E_QUOTA as above. */
int outbox_keep(struct outbox *box, const uint8_t *data, size_t bytes, int fd);

/* 0: nothing waits any more; KOPS_E_BUSY: something does. Else the client is gone. */
int outbox_flush(struct outbox *box);

/* The first of what waits will not be sent. */
void outbox_drop(struct outbox *box);

#endif
