/* The list: each call, and random calls compared with plain arrays. Its invariants are checked in any build. */
#undef NDEBUG

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/list.h"
#include "unit/base/random_ops.h"

enum { LISTS = 3, THINGS = 40, STEPS = 100000 };

struct thing {
	int number;
	struct list_link link, other;
};

static void zero_is_an_empty_list(void **state)
{
	struct list list = {0};
	struct thing thing = {0};

	(void)state;
	assert_true(list_is_empty(&list));
	assert_null(list_first(&list, struct thing, link));
	assert_null(list_last(&list, struct thing, link));
	assert_null(list_take(&list, struct thing, link));
	assert_false(list_has(&thing.link));
}

static void a_thing_is_in_two_lists(void **state)
{
	struct list list = {0}, others = {0};
	struct thing a = {.number = 1}, b = {.number = 2};

	(void)state;
	list_push_last(&list, &a.link);
	list_push_last(&list, &b.link);
	list_push_first(&others, &a.other);
	list_push_first(&others, &b.other);
	assert_ptr_equal(list_first(&list, struct thing, link), &a);
	assert_ptr_equal(list_next(&a, link), &b);
	assert_null(list_next(&b, link));
	assert_ptr_equal(list_first(&others, struct thing, other), &b);
	assert_ptr_equal(list_prev(&a, other), &b);
	list_remove(&a.link);
	assert_false(list_has(&a.link));
	assert_true(list_has(&a.other));
	assert_ptr_equal(list_last(&others, struct thing, other), &a);
}

static void take_out(struct list *walks, struct thing *t)
{
	list_walks_pass(walks, &t->link);
	list_remove(&t->link);
	memset(t, 0xff, sizeof *t);
}

/* Two walks, of which the current element may be removed. */
static void walks_in_pieces(void **state)
{
	struct thing things[5] = {{.number = 0}, {.number = 1}, {.number = 2}, {.number = 3}, {.number = 4}};
	struct list list = {0}, walks = {0};
	struct list_walk a = {0}, b = {0};

	(void)state;
	list_walk_begin(&a, &walks, &list);
	assert_null(list_walk_at(&a, struct thing, link));
	for (int i = 0; i < 5; i++)
		list_push_last(&list, &things[i].link);
	list_walk_begin(&a, &walks, &list);
	list_walk_begin(&b, &walks, &list);
	assert_ptr_equal(list_walk_at(&a, struct thing, link), &things[0]);
	list_walk_on(&a);
	take_out(&walks, &things[0]);
	assert_ptr_equal(list_walk_at(&a, struct thing, link), &things[1]);
	assert_ptr_equal(list_walk_at(&b, struct thing, link), &things[1]);
	take_out(&walks, &things[1]);
	take_out(&walks, &things[2]);
	assert_ptr_equal(list_walk_at(&a, struct thing, link), &things[3]);
	list_walk_on(&a);
	list_walk_end(&b);
	list_walk_end(&b);
	take_out(&walks, &things[4]);
	assert_null(list_walk_at(&a, struct thing, link));
	list_walk_end(&a);
	assert_true(list_is_empty(&walks));
}

static void a_walk_bears_what_it_meets_to_be_taken_out(void **state)
{
	struct thing things[4] = {{.number = 0}, {.number = 1}, {.number = 2}, {.number = 3}}, *t, *following;
	struct list list = {0};
	int met = 0;

	(void)state;
	for (int i = 0; i < 4; i++)
		list_push_last(&list, &things[i].link);
	list_for_each_safe (t, following, &list, link) {
		assert_int_equal(t->number, met++);
		if (t->number % 2) {
			list_remove(&t->link);
			memset(t, 0xff, sizeof *t);
		}
	}
	assert_int_equal(met, 4);
	assert_ptr_equal(list_next(&things[0], link), &things[2]);
	assert_null(list_next(&things[2], link));
}

/* What one list should hold, in order. */
struct model {
	struct thing *order[THINGS];
	unsigned n;
};

static void model_insert(struct model *m, unsigned at, struct thing *t)
{
	memmove(&m->order[at + 1], &m->order[at], (m->n - at) * sizeof m->order[0]);
	m->order[at] = t;
	m->n++;
}

static void model_remove(struct model *m, const struct thing *t)
{
	unsigned at = 0;

	while (m->order[at] != t)
		at++;
	m->n--;
	memmove(&m->order[at], &m->order[at + 1], (m->n - at) * sizeof m->order[0]);
}

static void compare(const struct list *list, const struct model *m)
{
	struct thing *t, *before = NULL;
	unsigned n = 0;

	list_for_each (t, list, link) {
		assert_in_range(n, 0, m->n - 1);
		assert_ptr_equal(t, m->order[n++]);
		assert_ptr_equal(t->link.list, list);
		assert_ptr_equal(list_prev(t, link), before);
		before = t;
	}
	assert_int_equal(n, m->n);
	assert_int_equal(list_is_empty(list), m->n == 0);
	assert_ptr_equal(list_last(list, struct thing, link), before);
}

static void insert(struct list *list, struct model *m, struct thing *t)
{
	unsigned at = below(m->n + 1);

	if (at == 0)
		list_push_first(list, &t->link);
	else if (at == m->n)
		list_push_last(list, &t->link);
	else
		list_insert(list, &m->order[at - 1]->link, &t->link);
	model_insert(m, at, t);
}

static void random_calls_do_what_arrays_do(void **state)
{
	struct list lists[LISTS] = {0};
	struct model models[LISTS] = {0};
	struct thing things[THINGS] = {0};

	(void)state;
	begin_random();
	for (int i = 0; i < STEPS; i++) {
		struct thing *t = &things[below(THINGS)];
		unsigned l = list_has(&t->link) ? (unsigned)(t->link.list - lists) : below(LISTS);

		if (!list_has(&t->link)) {
			insert(&lists[l], &models[l], t);
		} else if (below(2)) {
			model_remove(&models[l], t);
			list_remove(&t->link);
		} else {
			t = list_take(&lists[l], struct thing, link);
			assert_ptr_equal(t, models[l].order[0]);
			model_remove(&models[l], t);
		}
		compare(&lists[l], &models[l]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(zero_is_an_empty_list),
	    cmocka_unit_test(a_thing_is_in_two_lists),
	    cmocka_unit_test(a_walk_bears_what_it_meets_to_be_taken_out),
	    cmocka_unit_test(walks_in_pieces),
	    cmocka_unit_test(random_calls_do_what_arrays_do),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
