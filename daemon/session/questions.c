#include "session/questions.h"

#include <stdlib.h>

#include "kops_types.h"

struct question {
	struct list_link link;
	uint64_t id; /* of the request */
};

/* ---- Those of one session ---- */

static void wait_for_answer(struct questions *q)
{
	list_push_last(&q->askers->waiting, &q->waiting);
}

int questions_add(struct questions *q, uint64_t id)
{
	struct question *question = malloc(sizeof *question);

	if (!question)
		return KOPS_E_NOMEM;
	*question = (struct question){.id = id};
	list_push_last(&q->list, &question->link);
	if (!list_has(&q->waiting) && !q->errand.step)
		wait_for_answer(q);
	return 0;
}

bool questions_drop(struct questions *q)
{
	struct question *question = list_take(&q->list, struct question, link);

	free(question);
	return question;
}

static void answer_first(struct questions *q)
{
	struct question *question = list_take(&q->list, struct question, link);
	uint64_t id = question->id;

	free(question);
	q->askers->answer(q->session, id);
}

static bool answer_step(struct errand *errand)
{
	struct questions *q = container_of(errand, struct questions, errand);

	if (!q->askers || list_is_empty(&q->list))
		return false;
	if (q->askers->is_out(q->askers)) {
		wait_for_answer(q);
		return false;
	}
	answer_first(q);
	if (!list_is_empty(&q->list))
		return true;
	q->askers->engine->progress(q->askers->engine);
	return false;
}

void questions_leave(struct questions *q)
{
	if (list_has(&q->waiting))
		list_remove(&q->waiting);
	q->askers = NULL;
}

/* ---- All requests ---- */

static bool hand_out_step(struct errand *errand)
{
	struct askers *askers = container_of(errand, struct askers, errand);
	struct questions *q;

	if (list_is_empty(&askers->waiting) || askers->is_out(askers))
		return false;
	q = list_take(&askers->waiting, struct questions, waiting);
	errands_add(&q->account->errands, &q->errand, answer_step);
	return true;
}

void questions_answer(struct askers *askers)
{
	if (!list_is_empty(&askers->waiting) && !askers->errand.step)
		errands_add(&askers->engine->accounts.errands, &askers->errand, hand_out_step);
}
