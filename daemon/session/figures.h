/* figures.h: what the lists of users, sessions and jobs share: who may see whom, pages, figures of usage. */
#ifndef KOPS_FIGURES_H
#define KOPS_FIGURES_H

#include "kops.pb-c.h"
#include "session/session.h"

/* Of one answer. An item takes 450 bytes at most, so that so many fit in a datagram. */
#define FIGURES_PAGE 32u

/* By the setting see-others. */
bool figures_may_see(const struct session *session, uid_t uid);

/* Around the making of a list: fills usage.now of every user and session by one look at what runs. */
void figures_begin(const struct engine *engine);
void figures_end(const struct engine *engine);

void figures_of_usage(struct usage *usage, Kops__V1__Usage *ret);

#endif
