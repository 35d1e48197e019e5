#include "session/questions.h"

#include <stdlib.h>

#include "kops_types.h"

int questions_add(struct question **questions, uint64_t id)
{
	struct question *q = malloc(sizeof *q);

	if (!q)
		return KOPS_E_NOMEM;
	*q = (struct question){.next = *questions, .id = id};
	*questions = q;
	return 0;
}

bool questions_drop(struct question **questions)
{
	struct question *q = *questions;

	if (!q)
		return false;
	*questions = q->next;
	free(q);
	return true;
}

void questions_end(struct question **questions, struct session *session,
                   void (*answer)(struct session *session, uint64_t id))
{
	struct question *q = *questions, *next;

	*questions = NULL;
	for (; q; q = next) {
		next = q->next;
		answer(session, q->id);
		free(q);
	}
}
