/* judge_search.c: whether search found the right rows: their order is that of scores which lie within their
 * bounds.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "common/half.h"
#include "search/search.h"

/* What one query has found, and the scores of all rows in f64. */
struct finding {
	struct op_args args;
	uint64_t query;
	double *scores, worst,
	    bound; /* of those found; the largest bound of a score, negative: nobody can judge */
	bool *is_found;
};

static double value_found(const struct finding *f, uint64_t i)
{
	const struct view *v = &f->args.views[SEARCH_VALUES];

	return half_load(v->data, v->dtype, (int64_t)f->query * v->strides[0] + (int64_t)i * v->strides[1]);
}

static int32_t index_found(const struct finding *f, uint64_t i)
{
	const struct view *v = &f->args.views[SEARCH_INDICES];

	return ((const int32_t *)v->data)[(int64_t)f->query * v->strides[0] + (int64_t)i * v->strides[1]];
}

/* A lower number is better. */
static double badness(const struct finding *f, double value)
{
	return search_metric_of(&f->args) == SEARCH_L2 ? value : -value;
}

/* Returns NULL, or what is wrong of the i-th row found. */
static const char *judge_row(struct finding *f, uint64_t i)
{
	uint64_t rows = f->args.views[SEARCH_BASE].shape[0];
	int32_t index = index_found(f, i);
	double value = value_found(f, i);

	if (index < 0 || (uint64_t)index >= rows)
		return "is no row of the base";
	if (!search_allows(&f->args, f->query, (uint64_t)index))
		return "was filtered out";
	if (f->is_found[index])
		return "came before";
	f->is_found[index] = true;
	if (i > 0 && (badness(f, value) < badness(f, value_found(f, i - 1)) ||
	              (value == value_found(f, i - 1) && index < index_found(f, i - 1))))
		return "is out of order";
	if (f->bound < 0)
		return NULL;
	if (fabs(f->scores[index] - value) > f->bound)
		return "has another score";
	f->worst = fmax(f->worst, badness(f, f->scores[index]));
	return NULL;
}

/* Returns NULL, or what is wrong in view of the rows that were not found. */
static const char *judge_others(const struct finding *f, uint64_t found)
{
	for (uint64_t row = 0; row < f->args.views[SEARCH_BASE].shape[0] && f->bound >= 0; row++) {
		if (f->is_found[row] || !search_allows(&f->args, f->query, row))
			continue;
		if (found < search_count(&f->args))
			return "is -1, but there are others";
		if (badness(f, f->scores[row]) < f->worst - 2 * f->bound)
			return "is the last, but a better one was not found";
	}
	return NULL;
}

static const char *judge_query(struct finding *f, uint64_t *ret_place)
{
	uint64_t k = search_count(&f->args), i = 0, rows = f->args.views[SEARCH_BASE].shape[0];
	const char *why = NULL;

	f->bound = 0;
	f->worst = -(double)INFINITY;
	memset(f->is_found, 0, rows * sizeof *f->is_found);
	for (uint64_t row = 0; row < rows; row++) {
		struct search_score s = search_score(&f->args, f->query, row);

		f->scores[row] = s.value;
		if (search_allows(&f->args, f->query, row))
			f->bound = f->bound < 0 || s.bound < 0 ? -1 : fmax(f->bound, s.bound);
	}
	for (; i < k && index_found(f, i) != -1 && !why; i++)
		why = judge_row(f, i);
	*ret_place = i < k && !why ? i : i - 1;
	if (!why)
		why = judge_others(f, i);
	for (; i < k && !why; i++)
		if (index_found(f, i) != -1 ||
		    value_found(f, i) != (double)search_nothing(search_metric_of(&f->args)))
			why = "is behind the last one";
	return why;
}

/* Of each query: rows in the order of their scores, any of which may be off by its bound. */
bool judge_search(const struct problem *p, struct verdict *ret)
{
	struct finding f = {.args = judge_images(p, false)};
	uint64_t rows = f.args.views[SEARCH_BASE].shape[0], place = 0;
	const char *why = NULL;

	for (unsigned v = SEARCH_VALUES; v <= SEARCH_INDICES; v++)
		f.args.views[v].data = p->spaces[v]->host + f.args.views[v].offset;
	f.scores = malloc((rows + 1) * sizeof *f.scores);
	f.is_found = malloc((rows + 1) * sizeof *f.is_found);
	if (!f.scores || !f.is_found)
		why = "of a test that is out of memory";
	for (; f.query < f.args.views[SEARCH_QUERIES].shape[0] && !why; f.query++)
		if ((why = judge_query(&f, &place)) != NULL)
			snprintf(ret->why, sizeof ret->why, "query %llu, place %llu: row %d %s",
			         (unsigned long long)f.query, (unsigned long long)place, index_found(&f, place),
			         why);
	free(f.scores);
	free(f.is_found);
	return !why;
}
