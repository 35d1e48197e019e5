/* Tests lists of sessions, users and buffers: a step of a walk looks at few, whatever leaves the list
 * meanwhile. */
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

static uint64_t number_of(const struct list_link *at)
{
	return (uint64_t)container_of(at, struct thing, link)->number;
}

static void put(void *page, unsigned i, const struct request *r, const struct list_link *at)
{
	int *numbers = page;

	(void)r;
	numbers[i] = container_of(at, struct thing, link)->number;
}

static const struct figures_list kind = {is_listed, number_of, put};

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
	for (; !figures_find(r, &kind); steps++, looks = 0) {
		struct list_link *leaves = session->walk.at;
		assert_int_equal(looks, FIGURES_LOOKS);
		list_walks_pass(&walks, leaves);
		list_remove(leaves);
	}
	assert_int_equal(list_walk_at(&session->walk, struct thing, link)->number, LISTED);
	assert_in_range(steps, LISTED / FIGURES_LOOKS, LISTED / FIGURES_LOOKS + 1);
	while (session->walk.at)
		list_walk_on(&session->walk);
	assert_true(figures_find(r, &kind)); /* at the end */
	list_walk_end(&session->walk);
	free(r);
	free(session);
	free(things);
}

/* Fills a page from thing `first` on, which must end the walk. */
static unsigned fill_from(const struct list *all, const struct thing *first, int *page, uint64_t *ret_next)
{
	struct session *session = calloc(1, sizeof *session);
	struct request *r = calloc(1, sizeof *r);
	struct list walks = {0};

	r->session = session;
	list_walk_begin(&session->walk, &walks, all);
	while (session->walk.at != &first->link)
		list_walk_on(&session->walk);
	looks = 0;
	unsigned n = figures_fill(r, &kind, page, ret_next);
	assert_null(walks.first);
	free(r);
	free(session);
	return n;
}

static void a_page_ends_when_it_is_full_or_much_was_examined(void **state)
{
	struct thing *things = calloc(MANY, sizeof *things);
	struct list list = {0};
	int page[FIGURES_PAGE + 1];
	uint64_t next;

	(void)state;
	for (int i = 0; i < MANY; i++) {
		things[i].number = i;
		list_push_last(&list, &things[i].link);
	}
	page[FIGURES_PAGE] = -1;
	assert_int_equal(fill_from(&list, &things[LISTED], page, &next), FIGURES_PAGE);
	assert_int_equal(page[0], LISTED);
	assert_int_equal(page[FIGURES_PAGE - 1], LISTED + FIGURES_PAGE - 1);
	assert_int_equal(page[FIGURES_PAGE], -1);
	assert_int_equal(next, LISTED + FIGURES_PAGE - 1);
	assert_int_equal(looks, FIGURES_PAGE);

	assert_int_equal(fill_from(&list, &things[LISTED - FIGURES_LOOKS + 1], page, &next), 1);
	assert_int_equal(page[0], LISTED);
	assert_int_equal(next, LISTED);
	assert_int_equal(looks, FIGURES_LOOKS);

	assert_int_equal(fill_from(&list, &things[MANY - 2], page, &next), 2);
	assert_int_equal(next, 0);
	free(things);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_step_looks_at_few),
	    cmocka_unit_test(a_page_ends_when_it_is_full_or_much_was_examined),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
