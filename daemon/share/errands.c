#include "share/errands.h"

#include <stddef.h>

#include "base/clock.h"

static struct errands *of_place(struct turns_place *place)
{
	return (struct errands *)((char *)place - offsetof(struct errands, place));
}

static void push(struct errands *e, struct errand *errand)
{
	errand->next = NULL;
	*e->end = errand;
	e->end = &errand->next;
}

static struct errand *pop(struct errands *e)
{
	struct errand *errand = e->first;

	e->first = errand->next;
	if (!e->first)
		e->end = &e->first;
	return errand;
}

/* A step of the first, which then is the last. */
static void do_step(struct errands *e)
{
	struct errand *errand = pop(e);
	bool (*step)(struct errand *) = errand->step;

	errand->step = NULL;
	if (!step(errand))
		return;
	errand->step = step;
	push(e, errand);
}

static bool take(struct turns_place *place)
{
	struct errands *e = of_place(place);
	uint64_t end = e->turns->began_ns + ERRANDS_NS;

	/* There may be none: one that was added in the last turn was done in it. */
	for (unsigned n = 0; e->first && n < ERRANDS_STEPS; n++) {
		do_step(e);
		if (clock_ns() >= end)
			break;
	}
	return e->first != NULL;
}

void errands_init(struct errands *e, struct turns *turns, struct turns_user *user)
{
	*e = (struct errands){.turns = turns, .place = {.user = user, .midway = true, .take = take}};
	e->place.unwatched = true; /* it has no socket */
	e->end = &e->first;
}

void errands_add(struct errands *e, struct errand *errand, bool (*step)(struct errand *))
{
	errand->step = step;
	push(e, errand);
	turns_wait(e->turns, &e->place);
}

void errands_finish(struct errands *e)
{
	while (e->first)
		do_step(e);
	turns_leave(&e->place);
}
