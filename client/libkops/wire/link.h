/* link.h: connects the socket, notices its loss and connects again. */
#ifndef KOPS_CLIENT_LINK_H
#define KOPS_CLIENT_LINK_H

#include "libkops/base/state.h"

/* Fails with KOPS_E_STATE in a child of fork(). Every function that changes a handle begins with this call. */
int client_may_use(kops *k);

/* Also fails in a callback. Blocking functions begin with this call. */
int client_may_wait(kops *k);

/*
 * Tries once to connect, from DOWN to GREETING. If the daemon's queue of connections is full, blocks until
 * until_us at most; 0: not at all. KOPS_E_BUSY if trying again soon may help, KOPS_E_CONNECT; link.why has the
 * sentence.
 */
int client_link_open(kops *k, int64_t until_us);

/* Changes the socket's number if the last connection had it: an event loop would mistake one for the other. */
int client_link_change_number(kops *k);

/* Handles the daemon's Welcome. */
void client_link_up(kops *k);

/* Notes that the daemon does not answer any more. Replies that came before are still to be read. */
void client_link_broken(kops *k);

/*
 * Returns true if the socket may be used. If its number is another file by now, the link becomes BROKEN without
 * it.
 */
bool client_link_has_socket(kops *k);

/* Returns true if requests may be sent now. Others are sent on the next connection. */
bool client_can_send(const kops *k);

/* Starts connecting, if nobody does, because something has to be sent. */
void client_link_want(kops *k);

/*
 * Notes that the daemon answered a request with SHUTDOWN: it did not run it. The next connection gets it again.
 */
void client_link_drain(kops *k);

/* When the link has to connect or to give up; CLIENT_NEVER: it need not. */
int64_t client_link_next_us(const kops *k);

/*
 * Closes the socket. This ends the session even if a child of fork() has the socket too. In such a child it
 * does not.
 */
void client_link_hang_up(kops *k);

/*
 * Hangs up and moves to DOWN. Returns true if the daemon went without a SHUTDOWN and this program did not close
 * the socket.
 */
bool client_link_close(kops *k);

#endif
