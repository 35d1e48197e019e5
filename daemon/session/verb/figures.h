/* figures.h: shared by the lists of users, sessions and jobs: visibility, pages, usage. */
#ifndef KOPS_FIGURES_H
#define KOPS_FIGURES_H

#include "kops.pb-c.h"
#include "session/session.h"

/* Items in one answer. An item takes at most 450 bytes, so that they fit in a datagram. */
#define FIGURES_PAGE 32u

/*
 * Sessions, users or buffers that a step examines at most. A page begins with the first one that is listed.
 * Finding it may take several steps; the page ends with the step in which it began.
 */
#define FIGURES_LOOKS 128u

/* One kind of list. Items come by falling numbers. */
struct figures_list {
	bool (*is_listed)(const struct request *r, const struct list_link *at);
	uint64_t (*number)(const struct list_link *at);
	/* Makes it item i of the page. */
	void (*put)(void *page, unsigned i, const struct request *r, const struct list_link *at);
};

/* Takes a step of the session's walk to the first one that is listed. Returns true if the walk is there, or at
 * the end. */
bool figures_find(const struct request *r, const struct figures_list *list);

/*
 * Fills a page from there on, and ends the walk. Returns how many items it has. *ret_next becomes the number of
 * the last one that was examined; 0: that was all.
 */
unsigned figures_fill(const struct request *r, const struct figures_list *list, void *page, uint64_t *ret_next);

/* Returns true if the setting see-others lets the session see this user. */
bool figures_may_see(const struct session *session, uid_t uid);

/* Call these before and after making a list: figures_begin() fills usage.now of every user and session. */
void figures_begin(const struct engine *engine);
void figures_end(const struct engine *engine);

void figures_of_usage(struct usage *usage, Kops__V1__Usage *ret);

#endif
