/*
 * sessions.h: all sessions: who may open one, new settings, the look at rings and devices between turns, and
 * the end of all. Loop thread only.
 */
#ifndef KOPS_SESSIONS_H
#define KOPS_SESSIONS_H

#include "session/session.h"

/* engine, max and started_ns are set. */
void sessions_init(struct sessions *all);

/* Starts those that receive descriptors; most: that may hang. KOPS_E_SYSTEM with a sentence. */
int sessions_start_receivers(struct sessions *all, unsigned most, char why[WHY_BYTES]);

/* True when nothing is left to answer or to send to anybody. */
bool sessions_are_quiet(const struct sessions *all);

/* Settings were reloaded: gives every user its new limits, session by session, and then calls reloaded. */
void sessions_reload(struct sessions *all, void (*reloaded)(struct sessions *all));

/* Ends all of them, and does what that leaves to be done on the loop. */
void sessions_close(struct sessions *all);

/* Takes over an accepted connection, whose session opens when its user's turn comes. Returns the user's
 * account; NULL: the connection was refused, which the log says, and closed. */
struct account *session_arrive(struct sessions *all, int fd);

/* Tells a connection for which there is no room why it is about to be closed. */
void sessions_turn_away(struct sessions *all, int fd, const char *why);

#endif
