#include "session/questions.h"

#include <stdlib.h>

#include "kops_types.h"

int questions_add(struct list *questions, uint64_t id)
{
	struct question *q = malloc(sizeof *q);

	if (!q)
		return KOPS_E_NOMEM;
	*q = (struct question){.id = id};
	list_push_first(questions, &q->link);
	return 0;
}

bool questions_drop(struct list *questions)
{
	struct question *q = list_take(questions, struct question, link);

	if (!q)
		return false;
	free(q);
	return true;
}

void questions_end(struct list *questions, struct session *session,
                   void (*answer)(struct session *session, uint64_t id))
{
	struct question *q;

	while ((q = list_take(questions, struct question, link))) {
		answer(session, q->id);
		free(q);
	}
}
