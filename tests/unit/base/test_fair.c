/* The fair queue: shares, what idling saves up, and random calls compared with a plain model. Its invariants
 * are checked in any build. */
#undef NDEBUG

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fair.h"
#include "unit/base/random_ops.h"

enum { PARTIES = 6, STEPS = 100000 };

static bool has_had_less(const struct fair_queue *q, const struct fair_party *a, const struct fair_party *b)
{
	(void)q;
	return a->vtime < b->vtime;
}

static void arrive(struct fair_queue *q, struct fair_party *p)
{
	fair_catch_up(q, p);
	fair_wait(q, p);
}

/* Lets the next party have its turn and wait again. */
static struct fair_party *take_turn(struct fair_queue *q, double cost)
{
	struct fair_party *p = fair_next(q, has_had_less);

	fair_begin(q, p);
	fair_charge(q, p, cost);
	return p;
}

static void zero_is_an_empty_queue(void **state)
{
	struct fair_queue q = {0};
	struct fair_party p = {0};

	(void)state;
	assert_null(fair_next(&q, has_had_less));
	assert_false(fair_waits(&p));
	assert_false(fair_is_ahead(&q, &p));
}

static void parties_get_equal_shares(void **state)
{
	struct fair_queue q = {0};
	struct fair_party large = {0}, small = {0};
	double given[2] = {0};

	(void)state;
	arrive(&q, &large);
	arrive(&q, &small);
	for (int i = 0; i < 1100; i++)
		if (take_turn(&q, fair_next(&q, has_had_less) == &large ? 10 : 1) == &large)
			given[0] += 10;
		else
			given[1] += 1;
	assert_in_range(given[0], 990, 1010);
	assert_in_range(given[1], 990, 1010);
}

static void idling_saves_up_nothing(void **state)
{
	struct fair_queue q = {0};
	struct fair_party busy = {0}, idle = {0};
	unsigned turns = 0;

	(void)state;
	arrive(&q, &busy);
	for (int i = 0; i < 100; i++)
		take_turn(&q, 1);
	assert_true(fair_is_ahead(&q, &busy));
	arrive(&q, &idle);
	for (int i = 0; i < 100; i++)
		turns += take_turn(&q, 1) == &idle;
	assert_in_range(turns, 49, 51);
}

static void what_was_had_is_forgotten(void **state)
{
	struct fair_queue q = {0};
	struct fair_party p = {0};

	(void)state;
	arrive(&q, &p);
	take_turn(&q, 70);
	fair_leave(&p);
	assert_true(fair_is_ahead(&q, &p));
	fair_forget(&q);
	assert_false(fair_is_ahead(&q, &p));
	assert_true(q.clock == 70);
}

/* The next party must be the one that had least, and of equal ones the one that came last. */
static void compare(const struct fair_queue *q, const struct fair_party *parties, const unsigned *came,
                    const double *had)
{
	const struct fair_party *next = NULL;

	for (unsigned i = 0; i < PARTIES; i++) {
		assert_true(parties[i].vtime == had[i]);
		assert_int_equal(fair_waits(&parties[i]), came[i] > 0);
		if (came[i] && (!next || had[i] < had[next - parties] ||
		                (had[i] == had[next - parties] && came[i] > came[next - parties])))
			next = &parties[i];
	}
	assert_ptr_equal(fair_next(q, has_had_less), next);
}

static void random_calls_do_what_the_model_does(void **state)
{
	struct fair_queue q = {0};
	struct fair_party parties[PARTIES] = {0};
	unsigned came[PARTIES] = {0}; /* when each began to wait; 0: it does not */
	double had[PARTIES] = {0}, clock = 0, cost;

	(void)state;
	begin_random();
	for (unsigned step = 1; step <= STEPS; step++) {
		struct fair_party *next = fair_next(&q, has_had_less);
		unsigned i = below(PARTIES);

		if (next && below(2)) {
			i = (unsigned)(next - parties);
			cost = below(5);
			clock = had[i];
			take_turn(&q, cost);
			had[i] += cost;
		} else if (came[i]) {
			fair_leave(&parties[i]);
			came[i] = 0;
		} else {
			arrive(&q, &parties[i]);
			had[i] = had[i] > clock ? had[i] : clock;
			came[i] = step;
		}
		assert_true(q.clock == clock);
		compare(&q, parties, came, had);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(zero_is_an_empty_queue),
	    cmocka_unit_test(parties_get_equal_shares),
	    cmocka_unit_test(idling_saves_up_nothing),
	    cmocka_unit_test(what_was_had_is_forgotten),
	    cmocka_unit_test(random_calls_do_what_the_model_does),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
