/* The heap: each call, and random calls compared with a plain array. Its invariants are checked in any build.
 */
#undef NDEBUG

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/heap.h"
#include "base/list.h"
#include "unit/base/random_ops.h"

enum { HEAPS = 2, THINGS = 100, STEPS = 100000, VALUES = 50 };

struct thing {
	unsigned value, number; /* number: unique */
	struct heap_node node;
};

static struct thing *thing_of(const struct heap_node *node)
{
	return container_of(node, struct thing, node);
}

static bool goes_before(const struct heap_node *a, const struct heap_node *b)
{
	const struct thing *ta = thing_of(a), *tb = thing_of(b);

	return ta->value != tb->value ? ta->value < tb->value : ta->number < tb->number;
}

static void zero_is_an_empty_heap(void **state)
{
	struct heap heap = {0};
	struct thing thing = {0};

	(void)state;
	assert_null(heap.first);
	assert_false(heap_has(&thing.node));
	heap_put(&heap, &thing.node, goes_before);
	assert_true(heap_has(&thing.node));
	assert_ptr_equal(heap.first, &thing.node);
	heap_remove(&heap, &thing.node, goes_before);
	assert_null(heap.first);
	assert_false(heap_has(&thing.node));
}

static void the_first_goes_first(void **state)
{
	struct thing things[] = {{3, 0, {0}}, {1, 1, {0}}, {2, 2, {0}}, {1, 3, {0}}};
	const unsigned order[] = {1, 3, 2, 0};
	struct heap heap = {0};

	(void)state;
	for (unsigned i = 0; i < 4; i++)
		heap_put(&heap, &things[i].node, goes_before);
	for (unsigned i = 0; i < 4; i++) {
		assert_ptr_equal(heap.first, &things[order[i]].node);
		heap_remove(&heap, heap.first, goes_before);
	}
	assert_null(heap.first);
}

/* Counts the nodes from this one down. Each must have its slot, and must not go before its parent. */
static unsigned count(const struct heap_node *parent, struct heap_node *const *slot)
{
	const struct heap_node *node = *slot;

	if (!node)
		return 0;
	assert_ptr_equal(node->slot, slot);
	assert_false(parent && goes_before(node, parent));
	return 1 + count(node, &node->child) + count(parent, &node->sibling);
}

static void compare(const struct heap *heap, const struct thing *things, const int *where, int mine)
{
	const struct thing *first = NULL;
	unsigned n = 0;

	for (unsigned i = 0; i < THINGS; i++) {
		if (where[i] != mine)
			continue;
		n++;
		if (!first || goes_before(&things[i].node, &first->node))
			first = &things[i];
	}
	assert_ptr_equal(heap->first, first ? &first->node : NULL);
	assert_int_equal(count(NULL, &heap->first), n);
}

static void random_calls_do_what_an_array_does(void **state)
{
	struct heap heaps[HEAPS] = {0};
	struct thing things[THINGS] = {0};
	int where[THINGS]; /* the thing's heap; -1: none */

	(void)state;
	begin_random();
	for (unsigned i = 0; i < THINGS; i++) {
		things[i].number = i;
		where[i] = -1;
	}
	for (int step = 0; step < STEPS; step++) {
		unsigned i = below(THINGS);
		int h = where[i] < 0 ? (int)below(HEAPS) : where[i];

		if (where[i] < 0) {
			things[i].value = below(VALUES);
			heap_put(&heaps[h], &things[i].node, goes_before);
			where[i] = h;
		} else {
			i = below(2) ? i : thing_of(heaps[h].first)->number;
			heap_remove(&heaps[h], &things[i].node, goes_before);
			where[i] = -1;
		}
		compare(&heaps[h], things, where, h);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(zero_is_an_empty_heap),
	    cmocka_unit_test(the_first_goes_first),
	    cmocka_unit_test(random_calls_do_what_an_array_does),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
