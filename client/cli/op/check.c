#include "op/check.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "show.h"

#define ROWS_AT_LEAST 4

/* ---- sampling and comparing ---- */

struct check_sample check_sample_rows(uint64_t rows, double cost_of_row, double budget, struct check *c)
{
	double most = budget / (cost_of_row > 1 ? cost_of_row : 1);
	struct check_sample s = {.rows = rows, .n = rows};

	if (most < ROWS_AT_LEAST)
		most = ROWS_AT_LEAST;
	if ((double)rows > most)
		s.n = (uint64_t)most;
	c->seed = random_seed();
	random_start(&s.random, c->seed);
	return s;
}

uint64_t check_sample_row(struct check_sample *s, uint64_t i)
{
	uint64_t low = (uint64_t)((unsigned __int128)i * s->rows / s->n);
	uint64_t high = (uint64_t)((unsigned __int128)(i + 1) * s->rows / s->n);

	if (i == 0 || s->n == s->rows)
		return low;
	return i == s->n - 1 ? high - 1 : low + random_below(&s->random, high - low);
}

/* Whether an infinite or not-a-number result is the right one. */
static bool special_is_right(double got, double want, double bound, double largest)
{
	if (isnan(want) || isnan(got))
		return isnan(want) && isnan(got);
	if (isinf(want))
		return got == want;
	/* Overflow is right where the true value is within its bound of overflowing. */
	return signbit(got) == signbit(want) && fabs(want) + bound > largest * (1 - 0x1p-12);
}

void check_compare(struct check *c, uint64_t row, uint64_t column, double got, double want, double bound,
                   double largest)
{
	double error = fabs(got - want);
	bool right;

	c->compared++;
	if (isfinite(got) && isfinite(want)) {
		right = error <= bound;
	} else {
		right = special_is_right(got, want, bound, largest);
		error = right ? 0 : (double)INFINITY;
	}
	c->wrong += right ? 0 : 1;
	if (error > c->max_error)
		c->max_error = error;
	/* error/bound, without a division by 0 */
	bool first = c->compared == 1;
	if (!first && !(error * c->bound > c->error * bound) && !(!right && c->error <= c->bound))
		return;
	c->row = row;
	c->column = column;
	c->error = error;
	c->bound = bound;
	c->got = got;
	c->want = want;
}

double check_sum_growth(uint64_t n)
{
	double root = 8 * sqrt((double)n);

	return (root < (double)n ? root : (double)n) + 4;
}

double check_tiny_error(kops_dtype dtype)
{
	return dtype == KOPS_F16 ? 0x1p-25 : element_type(dtype)->smallest;
}

/* ---- results ---- */

bool check_passed(const struct check *check)
{
	return check->wrong == 0;
}

void check_show(FILE *out, const char *op, const struct check *check)
{
	fprintf(out, "check of %s: %s, %" PRIu64 " of %" PRIu64 " elements compared", op,
	        check_passed(check) ? "ok" : "WRONG", check->compared, check->elements);
	if (check->compared < check->elements)
		fprintf(out, " (random rows, seed %" PRIu64 ")", check->seed);
	fprintf(out, ", largest error %.3g", check->max_error);
	if (check->compared > 0 && check->bound > 0)
		fprintf(out, " (at most %.3g %% of the bound)", 100 * check->error / check->bound);
	fprintf(out, "; took %s\n", show_us(check->us).text);
	if (!check_passed(check))
		fprintf(out,
		        "  %" PRIu64 " beyond their bound, worst at row %" PRIu64 ", column %" PRIu64
		        ": %.9g where %.9g is right\n",
		        check->wrong, check->row, check->column, check->got, check->want);
}

void check_json(struct json *json, const char *key, const char *op, const struct check *check)
{
	json_object(json, key);
	json_text(json, "op", op);
	json_bool(json, "passed", check_passed(check));
	json_count(json, "elements", check->elements);
	json_count(json, "compared", check->compared);
	json_count(json, "wrong", check->wrong);
	json_real(json, "max_error", check->max_error);
	json_object(json, "worst");
	json_count(json, "row", check->row);
	json_count(json, "column", check->column);
	json_real(json, "got", check->got);
	json_real(json, "want", check->want);
	json_real(json, "error", check->error);
	json_real(json, "bound", check->bound);
	json_close_object(json);
	json_count(json, "seed", check->seed);
	json_us(json, "check_us", check->us);
	json_close_object(json);
}
