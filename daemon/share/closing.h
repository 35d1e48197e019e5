/* closing.h: closes connections and clients' memory in threads. Loop thread only. */
#ifndef KOPS_CLOSING_H
#define KOPS_CLOSING_H

#include "share/account.h"

/*
 * Closes a connection or memfd of this user in a thread, of which a user has a few at most. kopsd has no other
 * files from clients (receivers.h). If the account is NULL, the calling thread closes it.
 *
 * Closing a connection frees what lies unread in it (0.2 ms if it is full). Closing a memfd frees its pages if
 * nobody else has it. Sockets that lie unread in a connection, however deeply nested, may linger (SO_LINGER). A
 * signal ends that after a millisecond.
 *
 * A user alone may have half of closing_max closes pending, n users n / (n + 1) of it. kopsd reads nothing from
 * a user with more until they are done, so some is always left. Only refused connections can take the rest,
 * because their user is known too late. kopsd then accepts none for a while.
 */
void closing_add(struct accounts *all, struct account *account, int fd);

#endif
