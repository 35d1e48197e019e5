#include "device/autotune.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/shape_class.h"

#define SETS          256 /* of places; a shape has its place in one of them */
#define WAYS          4
#define FIRST_TRIAL   9   /* job of a shape */
#define TRIALS        3   /* of a kernel; the shortest counts, since others' jobs can only make it longer */
#define CONFIRMATIONS 2   /* further ones of the first choice where another kernel was faster */
#define DOUBT         1.5 /* a kernel may be so much faster than expected */
#define CANDIDATES    (RIVALS_MAX + 1)
#define NO_CANDIDATE  CANDIDATES
#define NO_KERNEL     SIZE_MAX
/*
 * How much faster than the first choice another kernel has to be to take its place. Ops in jobs that can be no
 * trials go by what such an op showed alone, without what some kernels gain as they begin during the op before:
 * on an H200 simt 2 µs more than cublas.
 */
#define GAIN          0.02
#define MIXED_GAIN    0.03
#define MIXED_GAIN_US 2.0

struct candidate {
	size_t kernel;
	double expected_us, least_us; /* least_us: 0 until a trial has shown it */
	unsigned trials;              /* begun */
};

struct entry {
	const struct op *op; /* NULL: a free place */
	uint64_t shape;
	uint64_t last_used;                      /* by the count of all uses */
	unsigned seen;                           /* jobs before the trials */
	unsigned n;                              /* 0: before the trials, or there is nothing to try */
	uint64_t round;                          /* of trials: no other has its number */
	bool is_out;                             /* a trial */
	struct candidate candidates[CANDIDATES]; /* [0]: the first choice */
	/* decide(): candidates, and what plans are told of them. */
	unsigned due, fastest; /* due: NO_CANDIDATE: no trial */
	struct tuned due_tuned, fastest_tuned;
};

struct autotune {
	struct autotune_owner owner;
	uint64_t uses;
	struct entry entries[SETS * WAYS];
};

/* Of all tables: a trial may outlast the one it began in. */
static uint64_t rounds;

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
	uint64_t pinned = (uint64_t)__atomic_load_n(&m->pin, __ATOMIC_RELAXED) == MEMORY_PINNED;

	hash =
	    mixed(hash, (uint64_t)v->dtype << 32 | (uint64_t)v->rank << 16 | pinned << 8 | (m->owner != NULL));
	hash = mixed(hash, v->offset % SHAPE_ALIGNMENT);
	for (uint32_t d = 0; d < v->rank; d++) {
		hash = mixed(hash, v->shape[d]);
		hash = mixed(hash, v->shape[d] > 1 ? (uint64_t)v->strides[d] : 0);
	}
	return hash;
}

/*
 * Of an op alone in its job, or of one that is not. Two shapes of one op and one hash share what was measured:
 * one of them may be slow, not wrong.
 */
static uint64_t shape_of(const struct op_args *args, bool is_one_of_many)
{
	bool is_scaling = strcmp(args->op->name, "gemm") == 0 && args->params.gemm.alpha == 0;
	uint64_t hash = mixed(is_one_of_many, is_scaling);

	hash = mixed(hash, args->op->reads_output(args));
	hash = mixed(hash, args->op->precision ? args->op->precision(args) : 0);
	for (unsigned i = 0; i <= args->op->n_inputs; i++)
		hash = hash_view(hash, &args->views[i]);
	return hash;
}

unsigned autotune_alike(const struct run *run)
{
	const struct run_op *first = run->ops, *op = first + 1;
	uint64_t shape = run->n_ops > 1 ? shape_of(&first->args, true) : 0;

	if (*first->pinned)
		return 0;
	for (; op < first + run->n_ops; op++)
		if (*op->pinned || op->args.op != first->args.op || shape_of(&op->args, true) != shape)
			return 0;
	return run->n_ops;
}

/* ---- The table ---- */

static struct entry *find(struct autotune *a, const struct op *op, uint64_t shape)
{
	struct entry *set = &a->entries[shape % SETS * WAYS];

	for (unsigned i = 0; i < WAYS; i++)
		if (set[i].op == op && set[i].shape == shape) {
			set[i].last_used = ++a->uses;
			return &set[i];
		}
	return NULL;
}

static struct entry *take_place(struct autotune *a, const struct op *op, uint64_t shape)
{
	struct entry *set = &a->entries[shape % SETS * WAYS], *oldest = set;

	for (unsigned i = 1; i < WAYS; i++)
		if (set[i].last_used < oldest->last_used)
			oldest = &set[i];
	*oldest = (struct entry){.op = op, .shape = shape, .last_used = ++a->uses, .due = NO_CANDIDATE};
	return oldest;
}

/* ---- Which kernel is next ---- */

/* *ret_bar_us: what another one would have to be below. */
static unsigned fastest_of(const struct entry *e, double *ret_bar_us)
{
	double bar_us = e->candidates[0].least_us * (1 - GAIN);
	unsigned fastest = 0;

	for (unsigned i = 1; i < e->n; i++)
		if (e->candidates[i].least_us > 0 && e->candidates[i].least_us < bar_us) {
			bar_us = e->candidates[i].least_us;
			fastest = i;
		}
	*ret_bar_us = bar_us;
	return fastest;
}

/* A kernel's first launch may include its loading: that it was slow says little. */
static double likely_us(const struct candidate *c)
{
	if (c->least_us == 0 || (c->trials == 1 && c->expected_us < c->least_us))
		return c->expected_us;
	return c->least_us;
}

static bool comes_into_question(const struct candidate *c, double bar_us)
{
	return c->trials < TRIALS && likely_us(c) < DOUBT * bar_us;
}

/*
 * One kernel's trials follow each other: the first launch of a kernel after another's takes longer, cuBLAS's on
 * the host too. Where a rival has won, the first choice has some more, for others' jobs may have stood in the
 * way of all that it had.
 */
static unsigned due_of(const struct entry *e, double bar_us)
{
	unsigned due = NO_CANDIDATE;

	if (e->n == 0 || e->is_out)
		return NO_CANDIDATE;
	if (e->candidates[0].trials < TRIALS)
		return 0;
	for (unsigned i = 1; i < e->n; i++) {
		const struct candidate *c = &e->candidates[i];

		if (!comes_into_question(c, bar_us))
			continue;
		if (c->trials > 0) /* begun, not yet done */
			return i;
		if (due == NO_CANDIDATE || c->expected_us < e->candidates[due].expected_us)
			due = i;
	}
	if (due == NO_CANDIDATE && e->fastest > 0 && e->candidates[0].trials < TRIALS + CONFIRMATIONS)
		return 0;
	return due;
}

static bool is_clearly_faster(const struct candidate *c, const struct candidate *first)
{
	return c->least_us < first->least_us * (1 - MIXED_GAIN) - MIXED_GAIN_US;
}

static void decide(const struct autotune *a, struct entry *e)
{
	const struct kernel *kernels = a->owner.kernels(e->op)->kernels;
	const struct candidate *first = &e->candidates[0], *c;
	double bar_us;

	e->fastest = fastest_of(e, &bar_us);
	e->due = due_of(e, bar_us);
	c = &e->candidates[e->fastest];
	e->fastest_tuned.n = e->fastest > 0;
	e->fastest_tuned.kernels[0] = (uint8_t)c->kernel;
	snprintf(e->fastest_tuned.why, sizeof e->fastest_tuned.why,
	         "fastest for this shape: %.4g us, %.16s took %.4g us", c->least_us,
	         kernels[first->kernel].name, first->least_us);
	if (e->due == NO_CANDIDATE)
		return;
	c = &e->candidates[e->due];
	e->due_tuned.n = e->due > 0;
	e->due_tuned.kernels[0] = (uint8_t)c->kernel;
	snprintf(e->due_tuned.why, sizeof e->due_tuned.why,
	         "on trial for this shape: %.4g us by estimate, %.16s took %.4g us", c->expected_us,
	         kernels[first->kernel].name, first->least_us);
}

/* NULL: the first choice. */
static const struct tuned *tuned_of(const struct entry *e, bool is_mixed)
{
	const struct tuned *tuned = !is_mixed && e->due != NO_CANDIDATE ? &e->due_tuned : &e->fastest_tuned;

	if (tuned->n == 0 || (is_mixed && !is_clearly_faster(&e->candidates[e->fastest], &e->candidates[0])))
		return NULL;
	return tuned;
}

const struct tuned *autotune_find(struct autotune *a, const struct op_args *args, unsigned n_alike)
{
	const struct entry *e = find(a, args->op, shape_of(args, n_alike > 1));

	return e ? tuned_of(e, n_alike == 0) : NULL;
}

/* ---- Trials ---- */

/* Of a rival: for good, whatever a trial that is still out will show. */
static bool is_exhausted(const struct entry *e, const struct candidate *c)
{
	return c != e->candidates && c->trials > TRIALS;
}

static void exhaust(struct candidate *c)
{
	c->trials = TRIALS + CONFIRMATIONS;
	c->least_us = 0;
}

void autotune_reject(struct autotune *a, const struct op_args *args, unsigned n_alike)
{
	struct entry *e = find(a, args->op, shape_of(args, n_alike > 1));
	unsigned asked = !e ? 0 : e->due != NO_CANDIDATE ? e->due : e->fastest;

	if (asked == 0)
		return; /* the first choice is not asked for */
	exhaust(&e->candidates[asked]);
	decide(a, e);
}

static void open_trials(const struct autotune *a, struct entry *e, const struct op_args *args,
                        size_t first_kernel)
{
	struct rival rivals[RIVALS_MAX];
	unsigned n = a->owner.rivals(a->owner.device, args, rivals);

	e->candidates[0] = (struct candidate){.kernel = first_kernel};
	e->n = 1;
	for (unsigned i = 0; i < n; i++)
		if (rivals[i].kernel != first_kernel && rivals[i].kernel <= UINT8_MAX)
			e->candidates[e->n++] = (struct candidate){.kernel = rivals[i].kernel,
			                                           .expected_us = rivals[i].time_ns / 1e3};
	if (e->n == 1)
		e->n = 0; /* nothing to try */
	e->round = ++rounds;
	decide(a, e);
}

/* Of all ops; NO_KERNEL where they have not the same. */
static size_t kernel_of(const struct autotune *a, const struct run *run)
{
	const struct run_op *first = run->ops;

	for (unsigned i = 1; i < run->n_ops; i++)
		if (run->ops[i].kernel != first->kernel)
			return NO_KERNEL;
	return (size_t)(first->kernel - a->owner.kernels(first->args.op)->kernels);
}

bool autotune_begin(struct autotune *a, const struct run *run, struct trial *ret_trial)
{
	const struct op_args *args = &run->ops[0].args;
	uint64_t shape = shape_of(args, run->n_ops > 1);
	size_t kernel = kernel_of(a, run);
	struct entry *e = find(a, args->op, shape);
	struct candidate *c;

	*ret_trial = (struct trial){0};
	if (!e)
		e = take_place(a, args->op, shape);
	if (e->seen < FIRST_TRIAL && kernel < NO_KERNEL && ++e->seen == FIRST_TRIAL)
		open_trials(a, e, args, kernel);
	if (e->due == NO_CANDIDATE)
		return false;
	c = &e->candidates[e->due];
	c->trials++; /* taken or not: one that plans never take must not be due for ever */
	e->is_out = c->kernel == kernel;
	decide(a, e);
	if (c->kernel != kernel)
		return false;
	*ret_trial = (struct trial){args->op, shape, e->round, kernel, run->n_ops};
	return true;
}

/* The candidate on trial; NULL: its place has been taken meanwhile. */
static struct candidate *take_back(struct autotune *a, const struct trial *trial, struct entry **ret_entry)
{
	struct entry *e = find(a, trial->op, trial->shape);

	if (!e || e->round != trial->round)
		return NULL;
	*ret_entry = e;
	e->is_out = false;
	for (unsigned i = 0; i < e->n; i++)
		if (e->candidates[i].kernel == trial->kernel)
			return &e->candidates[i];
	return NULL;
}

void autotune_end(struct autotune *a, const struct trial *trial, double took_us)
{
	struct entry *e;
	struct candidate *c = take_back(a, trial, &e);
	double us = took_us / trial->n_ops;

	if (!c)
		return;
	if (us <= 0 && c != e->candidates)
		exhaust(c);
	else if (us > 0 && (c->least_us == 0 || us < c->least_us) && !is_exhausted(e, c))
		c->least_us = us;
	decide(a, e);
}

void autotune_cancel(struct autotune *a, const struct trial *trial)
{
	struct entry *e;
	struct candidate *c = take_back(a, trial, &e);

	if (!c)
		return;
	c->trials--;
	decide(a, e);
}
