/*
 * questions.h: requests that wait for information: Ping waits for canaries, Stats for sensors. Loop thread
 * only.
 *
 * Once the information is there, all of them are answered, and there may be thousands. So an errand of kopsd's
 * goes through the sessions, and each session's requests are answered one by one, as an errand of its user. If
 * information is gathered again meanwhile, the rest waits for that.
 */
#ifndef KOPS_QUESTIONS_H
#define KOPS_QUESTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "job/engine.h"

struct session;

/* All requests that wait for one kind of information. */
struct askers {
	struct engine *engine;
	/* Returns true while the information is being gathered. */
	bool (*is_out)(const struct askers *askers);
	void (*answer)(struct session *session, uint64_t id);
	struct list waiting; /* non-empty struct questions that are not being answered yet */
	struct errand errand;
};

/* The waiting requests of one session. */
struct questions {
	struct askers *askers;
	struct session *session;
	struct account *account;
	struct list list; /* in the order of arrival */
	struct list_link waiting;
	struct errand errand;
};

/* Adds a request. KOPS_E_NOMEM. */
int questions_add(struct questions *questions, uint64_t id);

/* Has all requests answered, because the information is there. */
void questions_answer(struct askers *askers);

/* Stops answering, because the session ends. questions_drop() removes what is left. */
void questions_leave(struct questions *questions);

/* Removes one request. Returns false if there was none. */
bool questions_drop(struct questions *questions);

#endif
