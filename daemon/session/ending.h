/*
 * ending.h: how a session ends. A client may have left thousands of buffers and jobs, so an errand of its user
 * releases them one by one (share/errands.h). The client learns of the end when its connection closes. Loop
 * thread only.
 */
#ifndef KOPS_ENDING_H
#define KOPS_ENDING_H

struct session;

/* Ends the session for a reason, logged once; NULL: the client hung up. The session is in no list afterwards.
 * Idempotent. */
void session_close(struct session *session, const char *why);

#endif
