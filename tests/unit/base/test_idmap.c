/* Random operations against a plain array. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/idmap.h"
#include "kops.h"
#include "seed.h"

enum { IDS = 600, STEPS = 300000 };

static int things[IDS];

/* Makes ids that collide: multiples of a power of two, neighbours, and the ends of the range. */
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
	assert_null(map.now.slots);
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
		/* Alternates growing and shrinking, so that gaps close at every fill. */
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

/* While others are removed by their ids, each must be taken once, and no call may look at many slots. */
static void test_take_all(void **state)
{
	struct idmap map = {0};
	int in[IDS] = {0};
	unsigned calls = 0;
	void *value;

	(void)state;
	srand((unsigned)seed_of_run());
	for (int i = 0; i < IDS; i++)
		in[i] = idmap_put(&map, id_of(i), &things[i]) == 0;
	while (map.count > 0) {
		int i = rand() % IDS;

		if (rand() % 4 == 0) {
			assert_ptr_equal(idmap_remove(&map, id_of(i)), in[i] ? &things[i] : NULL);
			in[i] = 0;
		}
		value = idmap_take_next(&map);
		if (value) {
			i = (int)((int *)value - things);
			assert_int_equal(in[i], 1);
			in[i] = 0;
		}
		check_all(&map, in);
	}
	assert_null(idmap_take_next(&map));
	for (int i = 0; i < IDS; i++)
		assert_int_equal(in[i], 0);
	idmap_clear(&map);
	/* Leaves the last of a thousand, so most slots are empty. */
	for (int i = 0; i < IDS; i++)
		assert_int_equal(idmap_put(&map, id_of(i), &things[i]), 0);
	for (int i = 1; i < IDS; i++)
		assert_ptr_equal(idmap_remove(&map, id_of(i)), &things[i]);
	while (!(value = idmap_take_next(&map)))
		calls++;
	assert_ptr_equal(value, &things[0]);
	assert_in_range(calls, 0, map.now.capacity / IDMAP_LOOKS);
	idmap_clear(&map);
}

/* No call moves many values while tables double. Each id is found in whichever table has it. */
static void test_grows_in_pieces(void **state)
{
	enum { N = 20000 };
	struct idmap map = {0};
	size_t doubled = 0, most = 0;

	(void)state;
	for (uint64_t i = 1; i <= N; i++) {
		size_t old = map.old.count, capacity = map.now.capacity, left = map.now.count;

		assert_int_equal(idmap_put(&map, i << 32, &things[i % IDS]), 0);
		if (map.now.capacity != capacity) {
			assert_int_equal(old, 0);
			old = left;
			doubled++;
		}
		most = old - map.old.count > most ? old - map.old.count : most;
		for (uint64_t j = i; j; j /= 2)
			assert_ptr_equal(idmap_get(&map, j << 32), &things[j % IDS]);
		assert_int_equal(idmap_put(&map, 1ull << 32, &things[0]), KOPS_E_EXISTS);
		assert_int_equal(map.count, i);
	}
	assert_in_range(doubled, 10, 20);
	assert_in_range(most, 1, IDMAP_MOVES);
	idmap_clear(&map);
}

/* Tries arithmetic sequences, and the numbers that all collided under Fibonacci hashing. */
static void test_no_numbers_collide_on_purpose(void **state)
{
	enum { N = 4096, CAPACITY = 2 * N };
	static const uint64_t steps[] = {1, 1ull << 32, 1ull << 51, 0xf1de83e19937733d};
	static bool taken[CAPACITY];

	(void)state;
	assert_true(steps[3] * 0x9e3779b97f4a7c15u == 1);
	for (int key = 0; key < 50; key++) {
		idmap_choose_key();
		for (size_t s = 0; s < sizeof steps / sizeof steps[0]; s++) {
			size_t homes = 0;

			memset(taken, 0, sizeof taken);
			for (uint64_t i = 1; i <= N; i++) {
				bool *home = &taken[idmap_home(i * steps[s], CAPACITY)];

				homes += !*home;
				*home = true;
			}
			assert_true(homes > N * 3 / 4); /* for random numbers it is 0.79 of N */
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_empty),           cmocka_unit_test(test_put_twice),
	    cmocka_unit_test(test_random),          cmocka_unit_test(test_take_all),
	    cmocka_unit_test(test_grows_in_pieces), cmocka_unit_test(test_no_numbers_collide_on_purpose),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
