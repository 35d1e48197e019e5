/* figures.h: shared by the lists of users, sessions and jobs: visibility, pages, usage. */
#ifndef KOPS_FIGURES_H
#define KOPS_FIGURES_H

#include "kops.pb-c.h"
#include "session/session.h"

/* Items in one answer. An item takes at most 450 bytes, so that they fit in a datagram. */
#define FIGURES_PAGE 32u

/*
 * Sessions or users that a step examines at most. A page begins with the first one that is listed. Finding it
 * may take several steps; the page ends with the step in which it began.
 */
#define FIGURES_LOOKS 128u

/* Takes a step of the session's walk to the first one that is listed. Returns true if the walk is there, or at
 * the end. */
bool figures_find(const struct request *r,
                  bool (*is_listed)(const struct request *r, const struct list_link *at));

/* Returns true if the setting see-others lets the session see this user. */
bool figures_may_see(const struct session *session, uid_t uid);

/* Call these before and after making a list: figures_begin() fills usage.now of every user and session. */
void figures_begin(const struct engine *engine);
void figures_end(const struct engine *engine);

void figures_of_usage(struct usage *usage, Kops__V1__Usage *ret);

#endif
