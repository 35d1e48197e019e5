/* figures.h: what the lists of users, sessions and jobs share: who may see whom, pages, figures of usage. */
#ifndef KOPS_FIGURES_H
#define KOPS_FIGURES_H

#include "kops.pb-c.h"
#include "session/session.h"

/* Of one answer. An item takes 450 bytes at most, so that so many fit in a datagram. */
#define FIGURES_PAGE 32u

/*
 * A step of a list looks at so many sessions or users at most. A page begins with the first one that is listed,
 * which may take several steps to find, and ends with the step in which it began.
 */
#define FIGURES_LOOKS 128u

/* A step of the session's walk to the first that is listed. True: it is there, or at the end. */
bool figures_find(const struct request *r,
                  bool (*is_listed)(const struct request *r, const struct list_link *at));

/* By the setting see-others. */
bool figures_may_see(const struct session *session, uid_t uid);

/* Around the making of a list: fills usage.now of every user and session by one look at what runs. */
void figures_begin(const struct engine *engine);
void figures_end(const struct engine *engine);

void figures_of_usage(struct usage *usage, Kops__V1__Usage *ret);

#endif
