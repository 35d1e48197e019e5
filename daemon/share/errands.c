#include "share/errands.h"

#include <stddef.h>

#include "base/clock.h"

static struct errands *of_waiter(struct turns_waiter *waiter)
{
	return container_of(waiter, struct errands, waiter);
}

/* Does a step of the first errand, which then becomes the last. */
static void do_step(struct errands *e)
{
	struct errand *errand = list_take(&e->waiting, struct errand, link);
	bool (*step)(struct errand *) = errand->step;

	errand->step = NULL;
	if (!step(errand))
		return;
	errand->step = step;
	list_push_last(&e->waiting, &errand->link);
}

static bool take(struct turns_waiter *waiter)
{
	struct errands *e = of_waiter(waiter);
	uint64_t end = e->turns->began_ns + ERRANDS_NS;

	/* There may be none, if the last turn did one that was added in it. */
	for (unsigned n = 0; !list_is_empty(&e->waiting) && n < ERRANDS_STEPS; n++) {
		do_step(e);
		if (clock_ns() >= end)
			break;
	}
	return !list_is_empty(&e->waiting);
}

void errands_init(struct errands *e, struct turns *turns, struct turns_user *user)
{
	*e = (struct errands){.turns = turns, .waiter = {.user = user, .midway = true, .take = take}};
	e->waiter.unwatched = true; /* it has no socket */
}

void errands_add(struct errands *e, struct errand *errand, bool (*step)(struct errand *))
{
	errand->step = step;
	list_push_last(&e->waiting, &errand->link);
	turns_wait(e->turns, &e->waiter);
}

void errands_finish(struct errands *e)
{
	while (!list_is_empty(&e->waiting))
		do_step(e);
	turns_leave(&e->waiter);
}
