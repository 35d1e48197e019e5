/* link.h: the socket: connect, lose, connect again. */
#ifndef KOPS_CLIENT_LINK_H
#define KOPS_CLIENT_LINK_H

#include "libkops/base/state.h"

/* Fails with KOPS_E_STATE in a child of fork(). Every function that changes a handle begins with this. */
int client_may_use(kops *k);

/* Fails in a callback, too. Blocking functions begin with this. */
int client_may_wait(kops *k);

/*
 * One attempt to connect, from DOWN to GREETING. If connections queue there it blocks until until_us at most;
 * 0: not at all. KOPS_E_BUSY if trying again soon may help, KOPS_E_CONNECT; link.why has the sentence.
 */
int client_link_open(kops *k, int64_t until_us);

/* Changes the socket's number if it is the last connection's: an event loop would take it for that. */
int client_link_change_number(kops *k);

/* The daemon sent its Welcome. */
void client_link_up(kops *k);

/* The daemon does not answer any more. Replies that came before are still to be read. */
void client_link_broken(kops *k);

/* Returns true if the socket may be used. If its number is not ours any more, the link is BROKEN, without it.
 */
bool client_link_has_socket(kops *k);

/* Returns true if requests may go out now. Others go out on the next connection. */
bool client_can_send(const kops *k);

/* Something has to be sent: start connecting if nobody does. */
void client_link_want(kops *k);

/* A request was answered with SHUTDOWN: it did not run, and is sent again on the next connection. */
void client_link_drain(kops *k);

/* When the link has to connect or to give up; CLIENT_NEVER. */
int64_t client_link_next_us(const kops *k);

/* Closes the socket. The session ends even if a child of fork() has it too, but not by such a child. */
void client_link_hang_up(kops *k);

/* Hangs up, to DOWN. Returns true if the daemon went without a SHUTDOWN, and this program did not close the
 * socket. */
bool client_link_close(kops *k);

#endif
