/*
 * questions.h: requests of sessions whose answer has to be found out first: Ping waits for canaries, Stats for
 * sensors. Loop thread only.
 *
 * What is found out answers all of them, and there may be thousands. So an errand of kopsd's goes from session
 * to session, and each session's are answered one by one, as an errand of its user. What is found out anew
 * meanwhile is waited for.
 */
#ifndef KOPS_QUESTIONS_H
#define KOPS_QUESTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "job/engine.h"

struct session;

/* All that wait for one thing. */
struct askers {
	struct engine *engine;
	/* Whether it is still being found out. */
	bool (*is_out)(const struct askers *askers);
	void (*answer)(struct session *session, uint64_t id);
	struct list waiting; /* struct questions that there are any of, and that nobody answers yet */
	struct errand errand;
};

/* Of one session. */
struct questions {
	struct askers *askers;
	struct session *session;
	struct account *account;
	struct list list; /* those asked first come first */
	struct list_link waiting;
	struct errand errand;
};

/* KOPS_E_NOMEM. */
int questions_add(struct questions *questions, uint64_t id);

/* It is found out: has all of them answered. */
void questions_answer(struct askers *askers);

/* Their session ends: none is answered any more. What is there goes by questions_drop(). */
void questions_leave(struct questions *questions);

/* Forgets one. False: there was none. */
bool questions_drop(struct questions *questions);

#endif
