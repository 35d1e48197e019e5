/* session.h: what is said on a connection, and what becomes of jobs, buffers and calls when it is lost. */
#ifndef KOPS_CLIENT_SESSION_H
#define KOPS_CLIENT_SESSION_H

#include "libkops/base/state.h"

/*
 * One attempt: connects, says Hello and sends all that is unanswered. If connections queue there it blocks
 * until until_us at most; 0: not at all. KOPS_E_BUSY if trying again soon may help, KOPS_E_CONNECT, _NOMEM,
 * _SYSTEM; link.why has the sentence.
 */
int client_session_connect(kops *k, int64_t until_us);

/*
 * Timers: connects when it is time, until_us as client_session_connect() has it; gives up when it is too late.
 * Returns false if it was time for nothing.
 */
bool client_session_tick(kops *k, int64_t now_us, int64_t until_us);

/* Reads one datagram, or the end of the connection, and sleeps for it with `block`. False: there was nothing.
 */
bool client_session_receive(kops *k, bool block);

/* Ends the jobs whose ends are in the ring. Returns false if there was none. */
bool client_session_take_ends(kops *k);

/* Sends session.call, if there is one, and this connection is known to take it. */
int client_call_send(kops *k);

#endif
