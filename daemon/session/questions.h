/* questions.h: requests of a session whose answer has to be found out first: Ping waits for canaries, Stats for
 * sensors. */
#ifndef KOPS_QUESTIONS_H
#define KOPS_QUESTIONS_H

#include <stdbool.h>
#include <stdint.h>

struct session;

struct question {
	struct question *next;
	uint64_t id; /* of the request */
};

/* KOPS_E_NOMEM. */
int questions_add(struct question **questions, uint64_t id);

/* Forgets one. False: there was none. */
bool questions_drop(struct question **questions);

/* Calls answer for each and forgets them. */
void questions_end(struct question **questions, struct session *session,
                   void (*answer)(struct session *session, uint64_t id));

#endif
