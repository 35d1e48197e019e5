/* questions.h: requests of a session whose answer has to be found out first: Ping waits for canaries, Stats for
 * sensors. */
#ifndef KOPS_QUESTIONS_H
#define KOPS_QUESTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

struct session;

struct question {
	struct list_link link; /* among those of its session */
	uint64_t id;           /* of the request */
};

/* KOPS_E_NOMEM. */
int questions_add(struct list *questions, uint64_t id);

/* Forgets one. False: there was none. */
bool questions_drop(struct list *questions);

/* Calls answer for each and forgets them. */
void questions_end(struct list *questions, struct session *session,
                   void (*answer)(struct session *session, uint64_t id));

#endif
