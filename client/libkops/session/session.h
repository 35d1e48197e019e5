/* session.h: the messages of a connection, and what happens to jobs, buffers and calls when it is lost. */
#ifndef KOPS_CLIENT_SESSION_H
#define KOPS_CLIENT_SESSION_H

#include "libkops/base/state.h"

/*
 * Tries once to connect: sends Hello and everything unanswered. If the daemon's queue of connections is full,
 * blocks until until_us at most; 0: not at all. KOPS_E_BUSY if trying again soon may help, KOPS_E_CONNECT,
 * _NOMEM, _SYSTEM; link.why has the sentence.
 */
int client_session_connect(kops *k, int64_t until_us);

/*
 * Runs the timers: connects when an attempt is due, with until_us as in client_session_connect(), and gives up
 * when time is over. Returns false if nothing was due.
 */
bool client_session_tick(kops *k, int64_t now_us, int64_t until_us);

/*
 * Reads one datagram, or the end of the connection; with `block` it sleeps until there is one. Returns false if
 * there was none.
 */
bool client_session_receive(kops *k, bool block);

/* Ends the jobs whose ends are in the ring. Returns false if there was none. */
bool client_session_take_ends(kops *k);

/* Sends session.call if it is set and the daemon is known to support it. */
int client_call_send(kops *k);

#endif
