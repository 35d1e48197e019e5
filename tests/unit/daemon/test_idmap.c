/* Random operations against a plain array. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "idmap.h"
#include "kops.h"
#include "seed.h"

enum { IDS = 600, STEPS = 300000 };

static int things[IDS];

/* Ids that collide: multiples of a power of two, neighbours, and the ends of the range. */
static uint64_t id_of(int i)
{
	switch (i % 3) {
	case 0:
		return (uint64_t)i << 32;
	case 1:
		return (uint64_t)i;
	default:
		return UINT64_MAX - (uint64_t)i;
	}
}

static void test_empty(void **state)
{
	struct idmap map = {0};

	(void)state;
	assert_null(idmap_get(&map, 0));
	assert_null(idmap_get(&map, 7));
	assert_null(idmap_remove(&map, 7));
	assert_null(map.slots);
	idmap_clear(&map);
}

static void test_put_twice(void **state)
{
	struct idmap map = {0};

	(void)state;
	assert_int_equal(idmap_put(&map, 5, &things[0]), 0);
	assert_int_equal(idmap_put(&map, 5, &things[1]), KOPS_E_EXISTS);
	assert_ptr_equal(idmap_get(&map, 5), &things[0]);
	assert_int_equal(map.count, 1);
	assert_ptr_equal(idmap_remove(&map, 5), &things[0]);
	assert_int_equal(idmap_put(&map, 5, &things[1]), 0);
	assert_ptr_equal(idmap_get(&map, 5), &things[1]);
	idmap_clear(&map);
}

static void count_visit(void *value, void *arg)
{
	unsigned *seen = arg;

	seen[(int *)value - things]++;
}

static void check_all(const struct idmap *map, const int in[IDS])
{
	unsigned seen[IDS] = {0};
	size_t count = 0;

	idmap_each(map, count_visit, seen);
	for (int i = 0; i < IDS; i++) {
		count += in[i] != 0;
		assert_int_equal(seen[i], in[i]);
		assert_ptr_equal(idmap_get(map, id_of(i)), in[i] ? &things[i] : NULL);
	}
	assert_int_equal(map->count, count);
}

static void test_random(void **state)
{
	struct idmap map = {0};
	int in[IDS] = {0};
	unsigned seed = (unsigned)seed_of_run();

	(void)state;
	print_message("seed: KOPS_TEST_SEED=%u\n", seed);
	srand(seed);
	for (int n = 0; n < STEPS; n++) {
		int i = rand() % IDS;
		/* Phases of growing and of shrinking, so that gaps close at every fill. */
		if (rand() % 100 < (n / 5000 % 2 ? 30 : 70)) {
			assert_int_equal(idmap_put(&map, id_of(i), &things[i]), in[i] ? KOPS_E_EXISTS : 0);
			in[i] = 1;
		} else {
			assert_ptr_equal(idmap_remove(&map, id_of(i)), in[i] ? &things[i] : NULL);
			in[i] = 0;
		}
		assert_ptr_equal(idmap_get(&map, id_of(i)), in[i] ? &things[i] : NULL);
		if (n % 1000 == 0)
			check_all(&map, in);
	}
	check_all(&map, in);
	idmap_clear(&map);
	assert_int_equal(map.count, 0);
	assert_null(idmap_get(&map, id_of(0)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_empty),
	    cmocka_unit_test(test_put_twice),
	    cmocka_unit_test(test_random),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
