/* closing.h: closing what clients sent, in threads. Loop thread only. */
#ifndef KOPS_CLOSING_H
#define KOPS_CLOSING_H

#include "share/account.h"

/*
 * Closes a descriptor that came from this user in a thread, of which a user has a few at most: how long that
 * takes is up to the user. A connection's end frees what lies unread in it (0.2 ms where it is full), that of a
 * memfd its pages, if nobody else has it. A file system of the user's own may never answer. A socket may linger
 * for as long as it was told to (SO_LINGER), and so may those that lie unread in a connection, however deep; a
 * signal ends that after a millisecond. account: NULL: not known; then it is closed by the caller's thread.
 *
 * Of a user with more to be closed than others may still have, nothing is read: so a user alone takes half of
 * closing_max, n users take n / (n + 1) of it, and some is always left. Only refused connections can take the
 * rest, since whose they are shows too late; then none is taken for a while.
 */
void closing_add(struct accounts *all, struct account *account, int fd);

#endif
