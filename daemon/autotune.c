#include "autotune.h"

#include <stdio.h>
#include <stdlib.h>

#define SETS        256 /* of places; a shape has its place in one of them */
#define WAYS        4
#define FIRST_TRIAL 9   /* job of a shape */
#define TRIALS      3   /* of a row; the shortest counts, since others' jobs can only make it longer */
#define DOUBT       1.5 /* a row may be so much faster than expected */
#define ALIGNMENT   16  /* as in shape_class.c */
/*
 * How much faster than the first choice another row has to be to take its place. In jobs of many ops some rows
 * begin during the one before, which one op alone does not show: on an H200 simt gains 1.5 µs by it, cublas
 * none.
 */
#define GAIN         0.03
#define GAIN_US      2.0
#define CANDIDATES   (RIVALS_MAX + 1)
#define NO_CANDIDATE CANDIDATES

struct candidate {
	size_t row;
	double expected_us, least_us; /* least_us: 0 until a trial has ended */
	unsigned begun;               /* trials */
};

struct lesson {
	uint64_t shape;                          /* 0: a free place */
	uint64_t last_used;                      /* by the count of all uses */
	unsigned seen;                           /* jobs before the trials */
	unsigned n;                              /* 0: before the trials, or there is nothing to try */
	struct candidate candidates[CANDIDATES]; /* [0]: the first choice */
	struct tuned tuned;                      /* what autotune_find() gives out */
};

struct autotune {
	struct autotune_owner owner;
	uint64_t uses;
	struct lesson lessons[SETS * WAYS];
};

struct autotune *autotune_new(const struct autotune_owner *owner)
{
	struct autotune *a = calloc(1, sizeof *a);

	if (a)
		a->owner = *owner;
	return a;
}

void autotune_free(struct autotune *a)
{
	free(a);
}

/* ---- Shapes ---- */

static uint64_t mixed(uint64_t hash, uint64_t word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
	return hash ^ hash >> 32;
}

static uint64_t hash_view(uint64_t hash, const struct view *v)
{
	const struct memory *m = v->space;

	hash = mixed(hash, (uint64_t)v->dtype << 32 | (uint64_t)v->rank << 16 | (m->owner != NULL));
	hash = mixed(hash, v->offset % ALIGNMENT);
	for (uint32_t d = 0; d < v->rank; d++) {
		hash = mixed(hash, v->shape[d]);
		hash = mixed(hash, v->shape[d] > 1 ? (uint64_t)v->strides[d] : 0);
	}
	return hash;
}

/* Never 0. Two shapes of one hash would share what was measured: one of them might be slow, not wrong. */
static uint64_t shape_of(const struct op_args *args)
{
	uint64_t hash = mixed(op_index(args->op) + 1, args->op->reads_output(args));

	if (args->op->precision)
		hash = mixed(hash, args->op->precision(args));
	for (unsigned i = 0; i <= args->op->n_inputs; i++)
		hash = hash_view(hash, &args->views[i]);
	return hash ? hash : 1;
}

/* ---- The table ---- */

static struct lesson *set_of(struct autotune *a, uint64_t shape)
{
	return &a->lessons[shape % SETS * WAYS];
}

static struct lesson *find(struct autotune *a, uint64_t shape)
{
	struct lesson *set = set_of(a, shape);

	for (unsigned i = 0; i < WAYS; i++)
		if (set[i].shape == shape)
			return &set[i];
	return NULL;
}

static struct lesson *take_place(struct autotune *a, uint64_t shape)
{
	struct lesson *set = set_of(a, shape), *oldest = set;

	for (unsigned i = 1; i < WAYS; i++)
		if (set[i].last_used < oldest->last_used)
			oldest = &set[i];
	*oldest = (struct lesson){.shape = shape};
	return oldest;
}

/* ---- Which row is next ---- */

static unsigned find_candidate(const struct lesson *l, size_t row)
{
	for (unsigned i = 0; i < l->n; i++)
		if (l->candidates[i].row == row)
			return i;
	return NO_CANDIDATE;
}

/* *ret_bar_us: what another one would have to be below. */
static unsigned fastest_of(const struct lesson *l, double *ret_bar_us)
{
	double bar_us = l->candidates[0].least_us * (1 - GAIN) - GAIN_US;
	unsigned fastest = 0;

	for (unsigned i = 1; i < l->n; i++)
		if (l->candidates[i].least_us > 0 && l->candidates[i].least_us < bar_us) {
			bar_us = l->candidates[i].least_us;
			fastest = i;
		}
	*ret_bar_us = bar_us;
	return fastest;
}

/* A candidate that needs another trial; NO_CANDIDATE: none does, or the first choice's are still out. */
static unsigned due_of(const struct lesson *l)
{
	unsigned due = NO_CANDIDATE;
	double bar_us;

	if (l->n == 0)
		return NO_CANDIDATE;
	if (l->candidates[0].begun < TRIALS)
		return 0;
	fastest_of(l, &bar_us);
	for (unsigned i = 1; i < l->n; i++) {
		const struct candidate *c = &l->candidates[i];
		if (c->begun < TRIALS && c->expected_us < DOUBT * bar_us &&
		    (due == NO_CANDIDATE || c->expected_us < l->candidates[due].expected_us))
			due = i;
	}
	return due;
}

/* ---- What a plan is told ---- */

static const char *name_of(const struct kernel_list *list, const struct lesson *l, unsigned candidate)
{
	return list->rows[l->candidates[candidate].row].name;
}

static void tell_fastest(const struct lesson *l, const struct kernel_list *list, unsigned fastest,
                         struct tuned *ret)
{
	snprintf(ret->why, sizeof ret->why, "fastest for this shape: %.4g us, %.16s took %.4g us",
	         l->candidates[fastest].least_us, name_of(list, l, 0), l->candidates[0].least_us);
}

static void tell_trial(const struct lesson *l, const struct kernel_list *list, unsigned due, struct tuned *ret)
{
	snprintf(ret->why, sizeof ret->why, "on trial for this shape: %.4g us by estimate, %.16s took %.4g us",
	         l->candidates[due].expected_us, name_of(list, l, 0), l->candidates[0].least_us);
}

static const struct kernel_list *list_of(const struct autotune *a, const struct op_args *args)
{
	return a->owner.kernels(args->op);
}

const struct tuned *autotune_find(struct autotune *a, const struct op_args *args, bool may_try)
{
	struct lesson *l = find(a, shape_of(args));
	unsigned due, fastest;
	double bar_us;

	if (!l)
		return NULL;
	due = may_try ? due_of(l) : NO_CANDIDATE;
	fastest = fastest_of(l, &bar_us);
	if (due == 0 || (due == NO_CANDIDATE && fastest == 0))
		return NULL;
	if (due != NO_CANDIDATE)
		tell_trial(l, list_of(a, args), due, &l->tuned);
	else
		tell_fastest(l, list_of(a, args), fastest, &l->tuned);
	l->tuned.n = 1;
	l->tuned.rows[0] = (uint8_t)l->candidates[due == NO_CANDIDATE ? fastest : due].row;
	return &l->tuned;
}

/* ---- Trials ---- */

static void open_trials(const struct autotune *a, struct lesson *l, const struct run_op *op, size_t first_row)
{
	struct rival rivals[RIVALS_MAX];
	unsigned n = a->owner.rivals(a->owner.device, &op->args, rivals);

	l->candidates[0].row = first_row;
	l->n = 1;
	for (unsigned i = 0; i < n; i++)
		if (rivals[i].row != first_row && rivals[i].row <= UINT8_MAX)
			l->candidates[l->n++] = (struct candidate){.row = rivals[i].row,
			                                           .expected_us = rivals[i].expected_ns / 1e3};
	if (l->n == 1)
		l->n = 0; /* nothing to try */
}

bool autotune_begin(struct autotune *a, const struct run_op *op, struct trial *ret_trial)
{
	uint64_t shape = shape_of(&op->args);
	size_t row = (size_t)(op->kernel - list_of(a, &op->args)->rows);
	struct lesson *l = find(a, shape);
	unsigned due;

	*ret_trial = (struct trial){0};
	if (!l)
		l = take_place(a, shape);
	l->last_used = ++a->uses;
	if (l->n == 0 && ++l->seen == FIRST_TRIAL)
		open_trials(a, l, op, row);
	due = due_of(l);
	if (due == NO_CANDIDATE)
		return false;
	l->candidates[due].begun++; /* taken or not: a row that is not taken is not due for ever */
	if (l->candidates[due].row != row)
		return false;
	*ret_trial = (struct trial){shape, row};
	return true;
}

void autotune_end(struct autotune *a, const struct trial *trial, double compute_us)
{
	struct lesson *l = find(a, trial->shape);
	unsigned i = l ? find_candidate(l, trial->row) : NO_CANDIDATE;
	struct candidate *c;

	if (i == NO_CANDIDATE)
		return; /* its place has been taken */
	c = &l->candidates[i];
	if (compute_us <= 0)
		c->begun--;
	else if (c->least_us == 0 || compute_us < c->least_us)
		c->least_us = compute_us;
}
