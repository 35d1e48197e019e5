/* Tests contest.c: whose errors are larger than chance explains. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <math.h>

#include <cmocka.h>

#include "accuracy.h"

#define MANY 1000000

/* Makes errors of n elements with roughly normal distributions, own ones `factor` times the peer's. */
static struct contest make_contest(uint64_t n, double factor, uint64_t seed)
{
	struct contest c = {0};
	struct random r = {seed};

	for (uint64_t i = 0; i < n; i++) {
		double own = 0, peer = 0;
		for (unsigned term = 0; term < 8; term++) {
			own += random_unit(&r);
			peer += random_unit(&r);
		}
		assert_true(contest_add(&c, i, i, factor * fabs(own), fabs(peer)));
	}
	return c;
}

static struct score score_of(struct contest *c)
{
	struct score s;

	contest_score(c, &s);
	contest_free(c);
	return s;
}

static void scores_are_what_they_say(void **state)
{
	struct contest c = {0};

	(void)state;
	assert_true(contest_add(&c, 0, 0, 3, 1) && contest_add(&c, 1, 1, 0, 1) && contest_add(&c, 2, 2, 4, 3) &&
	            contest_add(&c, 3, 3, 0, 1));
	struct score s = score_of(&c);
	assert_int_equal(s.n, 4);
	assert_true(s.own_max == 4 && s.peer_max == 3 && s.above == 1);
	assert_true(s.own_rms == 2.5 && s.peer_rms == sqrt(3));
	assert_true(s.excess == 25 - 12 && s.spread == sqrt(64 + 1 + 49 + 1));
}

static void equal_errors_hold(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 200; seed++) {
		struct contest c = make_contest(64 << seed % 8, 1, seed);
		struct score s = score_of(&c);
		assert_true(score_max_holds(&s, false));
		assert_true(score_rms_holds(&s, false));
	}
}

/* Makes a matrix in which each column as a whole errs more or less than the peer's; the first always more. */
static struct score columns_that_err_alike(uint64_t rows, uint64_t cols, bool all_more)
{
	struct contest c = {0};

	for (uint64_t row = 0; row < rows; row++)
		for (uint64_t col = 0; col < cols; col++)
			assert_true(contest_add(&c, row, col, all_more || col % 2 == 0 ? 1.1 : 0.9, 1));
	return score_of(&c);
}

static void elements_of_one_line_count_as_one(void **state)
{
	struct score one = columns_that_err_alike(3000, 1, true),
	             some = columns_that_err_alike(3000, 31, false),
	             many = columns_that_err_alike(3000, 31, true);

	(void)state;
	assert_true(one.excess > 0 && score_rms_holds(&one, false));
	assert_true(some.excess > 0 && score_rms_holds(&some, false));
	assert_false(score_rms_holds(&many, false));
}

static void no_errors_hold(void **state)
{
	struct contest c = {0};

	(void)state;
	for (unsigned i = 0; i < 64; i++)
		assert_true(contest_add(&c, i, i, 0, 0));
	struct score s = score_of(&c);
	assert_true(score_max_holds(&s, true) && score_rms_holds(&s, true));
}

static void an_excess_of_one_percent_shows_in_many_elements(void **state)
{
	struct contest c = make_contest(MANY, 1.01, 1);
	struct score s = score_of(&c);

	(void)state;
	assert_false(score_rms_holds(&s, false));
}

static void an_excess_of_a_half_shows_in_few_elements(void **state)
{
	struct contest c = make_contest(512, 1.5, 1);
	struct score s = score_of(&c);

	(void)state;
	assert_false(score_rms_holds(&s, false));
}

/* The peer errs by 1 everywhere; the kernel by 0.5 except in `n` elements. */
static struct score with_outliers(unsigned n, double error)
{
	struct contest c = {0};

	for (unsigned i = 0; i < 4096; i++)
		assert_true(contest_add(&c, i, i, i < n ? error : 0.5, 1));
	return score_of(&c);
}

static void a_few_errors_may_be_a_little_larger(void **state)
{
	struct score few = with_outliers(19, 1.01), more = with_outliers(20, 1.01),
	             far_out = with_outliers(1, 3);

	(void)state;
	assert_true(score_max_holds(&few, false));
	assert_false(score_max_holds(&more, false));
	assert_false(score_max_holds(&far_out, false));
}

static void nothing_excuses_what_could_be_exact(void **state)
{
	struct score s = with_outliers(1, 1.01), equal = with_outliers(4096, 1);

	(void)state;
	assert_false(score_max_holds(&s, true));
	assert_true(score_max_holds(&equal, true) && score_rms_holds(&equal, true));
}

static void an_infinite_error_fails(void **state)
{
	struct score s = with_outliers(1, INFINITY);

	(void)state;
	assert_false(score_max_holds(&s, false) && score_rms_holds(&s, false));
}

static struct pool make_pool(double factor)
{
	struct pool p = {0};

	for (uint64_t seed = 0; seed < 100; seed++) {
		struct contest c = make_contest(64, factor, seed);
		struct score s = score_of(&c);
		pool_add(&p, &s);
	}
	return p;
}

static void small_cases_tell_together(void **state)
{
	struct pool equal = make_pool(1), larger = make_pool(1.3);

	(void)state;
	assert_int_equal(equal.cases, 100);
	assert_true(pool_max_holds(&equal) && pool_rms_holds(&equal));
	assert_false(pool_max_holds(&larger) || pool_rms_holds(&larger));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(scores_are_what_they_say),
	    cmocka_unit_test(equal_errors_hold),
	    cmocka_unit_test(elements_of_one_line_count_as_one),
	    cmocka_unit_test(no_errors_hold),
	    cmocka_unit_test(an_excess_of_one_percent_shows_in_many_elements),
	    cmocka_unit_test(an_excess_of_a_half_shows_in_few_elements),
	    cmocka_unit_test(a_few_errors_may_be_a_little_larger),
	    cmocka_unit_test(nothing_excuses_what_could_be_exact),
	    cmocka_unit_test(an_infinite_error_fails),
	    cmocka_unit_test(small_cases_tell_together),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
