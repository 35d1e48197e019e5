/* Tests lists of sessions and users: a step of a walk looks at few, whatever leaves the list meanwhile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "session/verb/figures.h"
#include "session/verbs.h"

enum { MANY = 1000, LISTED = 900 };

struct thing {
	struct list_link link;
	int number;
};

static unsigned looks;

static bool is_listed(const struct request *r, const struct list_link *at)
{
	(void)r;
	looks++;
	return container_of(at, struct thing, link)->number >= LISTED;
}

static void a_step_looks_at_few(void **state)
{
	struct thing *things = calloc(MANY, sizeof *things);
	struct session *session = calloc(1, sizeof *session);
	struct request *r = calloc(1, sizeof *r);
	struct list list = {0}, walks = {0};
	unsigned steps = 1;

	(void)state;
	for (int i = 0; i < MANY; i++) {
		things[i].number = i;
		list_push_last(&list, &things[i].link);
	}
	r->session = session;
	list_walk_begin(&session->walk, &walks, &list);
	for (; !figures_find(r, is_listed); steps++, looks = 0) {
		struct list_link *leaves = session->walk.at;
		assert_int_equal(looks, FIGURES_LOOKS);
		list_walks_pass(&walks, leaves);
		list_remove(leaves);
	}
	assert_int_equal(list_walk_at(&session->walk, struct thing, link)->number, LISTED);
	assert_in_range(steps, LISTED / FIGURES_LOOKS, LISTED / FIGURES_LOOKS + 1);
	while (session->walk.at)
		list_walk_on(&session->walk);
	assert_true(figures_find(r, is_listed)); /* at the end */
	list_walk_end(&session->walk);
	free(r);
	free(session);
	free(things);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_step_looks_at_few),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
