#include "choice/race.h"

#include <stdlib.h>
#include <string.h>

#include "measure.h"

#define NEAR     1.5  /* times the fastest at the first look; such kernels are measured with care */
#define HOPELESS 20.0 /* times the fastest; such kernels are left out */
#define LONG_US  1e3  /* if a launch takes this long */

struct racing {
	struct bench *b;
	struct race_field *field;
	const struct operands *operands;
	struct race race;
	double best_us; /* at the first look */
};

void race_field_reset(struct race_field *field)
{
	memset(field->slow, 0, sizeof(field->slow));
}

void race_free(struct race *race)
{
	free(race->rows);
	*race = (struct race){0};
}

double race_loss_percent(const struct race *race)
{
	return 100 * (race->rows[0].median_us / race->rows[race->best].median_us - 1);
}

/* ---- The first look: a few launches, with a warm-up only for the first of all ---- */

static int look(struct racing *r, const char *kernel, bool check, uint64_t warmup_for_it,
                struct bench_row *ret_row)
{
	struct measurement what = {.kernel = kernel,
	                           .mode = BENCH_COLD,
	                           .reps = 1,
	                           .launches = r->b->launches,
	                           .check = check,
	                           .settled = r->field->settled};
	uint64_t warmup = r->b->warmup;

	r->b->warmup = warmup_for_it;
	int rc = measure(r->b, &what, r->operands, ret_row);
	r->b->warmup = warmup;
	return rc;
}

static double work_of(const struct bench_row *row)
{
	return row->flops + row->bytes;
}

static bool is_hopeless(const struct racing *r, size_t kernel)
{
	return r->field->slow[kernel].slowness > 0 &&
	       r->field->slow[kernel].work <= work_of(&r->race.rows[0]) &&
	       r->field->slow[kernel].slowness * r->best_us > LONG_US;
}

static void note_slowness(struct racing *r, size_t kernel, const struct bench_row *row)
{
	double slowness = row->median_us / r->best_us, work = work_of(row);
	bool is_first = r->field->slow[kernel].slowness == 0;

	if (slowness > HOPELESS && (is_first || work < r->field->slow[kernel].work)) {
		r->field->slow[kernel].work = work;
		r->field->slow[kernel].slowness = slowness;
	}
}

/* If kopsd has only kernels of larger errors, all of them are rivals. */
static bool is_rival(const struct race *race, const struct bench_row *row)
{
	return !row->larger_errors || race->rows[0].larger_errors;
}

/*
 * Looks at kopsd's choice over all sets: small sets stay in the cache, and the first kernel would load them for
 * the others.
 */
static int look_at_choice(struct racing *r, bool check)
{
	struct race *race = &r->race;
	uint64_t launches = r->b->launches > 0 ? r->b->launches : LAUNCHES_MAX;
	int rc = look(r, NULL, check, 1 + r->operands->n_sets / launches, &race->rows[0]);

	if (rc < 0)
		return rc;
	if (!bench_row_measured(&race->rows[0])) {
		bench_put(race->note, sizeof(race->note), race->rows[0].note);
		return 0;
	}
	r->best_us = race->rows[0].median_us;
	race->n = 1;
	return 0;
}

static int look_at_others(struct racing *r, bool check)
{
	const struct bench_kernels *kernels = &r->field->kernels;
	struct race *race = &r->race;

	race->alone = true;
	/* kernels are sorted from slowest to fastest */
	for (size_t i = kernels->n; i-- > 0 && race->n > 0;) {
		struct bench_row *row = &race->rows[race->n];
		if (strcmp(kernels->names[i], race->rows[0].kernel) == 0 || is_hopeless(r, i))
			continue;
		race->alone = false;
		int rc = look(r, kernels->names[i], check, 0, row);
		if (rc < 0)
			return rc;
		if (!bench_row_measured(row))
			continue;
		race->n++;
		if (row->median_us < r->best_us && is_rival(race, row))
			r->best_us = row->median_us;
		note_slowness(r, i, row);
	}
	return 0;
}

/* ---- With care ---- */

static bool is_near(const struct racing *r, size_t row)
{
	return row == 0 || r->race.rows[row].median_us <= NEAR * r->best_us;
}

static int measure_again(struct racing *r, struct bench_row *row, uint64_t reps)
{
	struct bench_row seen = *row;
	struct measurement what = {
	    .kernel = seen.kernel, .mode = BENCH_COLD, .reps = reps, .launches = r->b->launches};

	int rc = measure(r->b, &what, r->operands, row);
	if (rc < 0 || !bench_row_measured(row)) {
		*row = seen;
		return rc;
	}
	memcpy(row->why, seen.why, sizeof(row->why)); /* not "asked for by name" */
	row->max_error = seen.max_error;
	row->error_to_bound = seen.error_to_bound;
	row->wrong = seen.wrong;
	memcpy(row->note, seen.note, sizeof(row->note));
	return 0;
}

static int measure_near(struct racing *r, uint64_t reps)
{
	size_t near = 0;
	int rc = 0;

	for (size_t i = 0; i < r->race.n; i++)
		near += is_near(r, i);
	/* If all others are far slower, the first look has decided. */
	for (size_t i = 0; rc == 0 && near > 1 && i < r->race.n; i++)
		if (is_near(r, i))
			rc = measure_again(r, &r->race.rows[i], reps);
	for (size_t i = 0; i < r->race.n; i++)
		if (is_rival(&r->race, &r->race.rows[i]) &&
		    r->race.rows[i].median_us < r->race.rows[r->race.best].median_us)
			r->race.best = i;
	return rc;
}

int race_run(struct bench *b, struct race_field *field, const struct operands *operands, uint64_t reps,
             bool check, struct race *ret)
{
	struct racing r = {.b = b, .field = field, .operands = operands};
	int rc;

	r.race.rows = calloc(field->kernels.n + 1, sizeof(*r.race.rows));
	if (r.race.rows == NULL) {
		bench_put(b->why, sizeof(b->why), "out of memory");
		return KOPS_E_NOMEM;
	}
	rc = look_at_choice(&r, check);
	if (rc == 0)
		rc = look_at_others(&r, check);
	if (rc == 0)
		rc = measure_near(&r, reps);
	if (rc < 0)
		race_free(&r.race);
	else
		*ret = r.race;
	return rc;
}
