/* closing.h: closing connections and clients' memory, in threads. Loop thread only. */
#ifndef KOPS_CLOSING_H
#define KOPS_CLOSING_H

#include "share/account.h"

/*
 * Closes a connection of this user's or a memfd that came from it in a thread, of which a user has a few at
 * most. Nothing else that came from clients is in this process (receivers.h). A connection's end frees what
 * lies unread in it (0.2 ms where it is full), that of a memfd its pages, if nobody else has it. Sockets that
 * lie unread in a connection, however deep, may linger for as long as they were told to (SO_LINGER); a signal
 * ends that after a millisecond. account: NULL: not known; then it is closed by the caller's thread.
 *
 * Of a user with more to be closed than others may still have, nothing is read: so a user alone takes half of
 * closing_max, n users take n / (n + 1) of it, and some is always left. Only refused connections can take the
 * rest, since whose they are shows too late; then none is taken for a while.
 */
void closing_add(struct accounts *all, struct account *account, int fd);

#endif
