#include "device/learned.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/invariant.h"
#include "hash.h"

#define WAYS          4 /* entries of a set; a shape can be in one set only */
#define SETS          (LEARNED_SHAPES_MAX / WAYS)
#define FIRST_TRIAL   9    /* the first job of a shape that may be a trial */
#define TRIALS        3    /* of a kernel; the shortest counts, because other jobs can only make it longer */
#define CONFIRMATIONS 2    /* further trials of the first choice, if another kernel was faster */
#define DOUBT         1.5  /* a kernel may be faster than expected by this factor */
#define LOADING_US    10e3 /* the most that a kernel's first launch takes longer than its others */
#define NO_CANDIDATE  LEARNED_CANDIDATES_MAX
#define ALIGNMENT     16 /* in bytes: the widest access of a thread, and TMA's requirement */
#define US_MAX        1e12
#define NO_KERNEL     SIZE_MAX
/*
 * How much faster than the first choice another kernel must be to replace it. Jobs that cannot be trials use
 * what an op alone showed. That misses what some kernels gain by beginning during the previous op: on an H200
 * simt gains 2 µs more than cublas.
 */
#define GAIN          0.02
#define MIXED_GAIN    0.03
#define MIXED_GAIN_US 2.0
/* Jobs after which trials begin anew: slow ones in a row, and all of them after trials that began so. Twice as
 * many after each time. */
#define SLOW_JOBS   3u
#define LATER_JOBS  64u
#define DOUBLED_MAX 16u /* times */

struct entry {
	const struct op *op; /* NULL: a free entry */
	uint64_t shape;
	uint64_t last_used;  /* value of the count of uses */
	unsigned seen;       /* jobs before the trials */
	unsigned n;          /* 0: before the trials, or nothing to try */
	uint64_t round;      /* of trials; unique */
	bool is_out;         /* a trial */
	unsigned slow, jobs; /* since the trials: slow jobs in a row, all jobs */
	unsigned again;      /* how often the trials began anew */
	struct learned_candidate candidates[LEARNED_CANDIDATES_MAX]; /* [0]: the first choice */
	/* Set by decide(): candidates, and the preferences for plans. */
	unsigned due, fastest; /* due is NO_CANDIDATE if no trial is due */
	struct preference due_preference, fastest_preference;
};

struct learned {
	struct learned_owner owner;
	uint64_t uses, changes;
	struct entry entries[SETS * WAYS];
};

/* Counts the rounds of all tables, because a trial may outlast the round that it began in. */
static uint64_t rounds;

struct learned *learned_new(const struct learned_owner *owner)
{
	struct learned *l = calloc(1, sizeof *l);

	if (l)
		l->owner = *owner;
	return l;
}

void learned_free(struct learned *l)
{
	free(l);
}

/* ---- Shapes ---- */

static uint64_t hash_view(uint64_t hash, const struct view *v)
{
	const struct memory *m = v->space;

	if (view_is_absent(v))
		return hash_word(hash, 0);
	uint64_t pinned = (uint64_t)__atomic_load_n(&m->pin, __ATOMIC_RELAXED) == MEMORY_PINNED;
	hash = hash_word(hash,
	                 (uint64_t)v->dtype << 32 | (uint64_t)v->rank << 16 | pinned << 8 | (m->owner != NULL));
	hash = hash_word(hash, v->offset % ALIGNMENT);
	for (uint32_t d = 0; d < v->rank; d++) {
		hash = hash_word(hash, v->shape[d]);
		hash = hash_word(hash, v->shape[d] > 1 ? (uint64_t)v->strides[d] : 0);
	}
	return hash;
}

/*
 * Hashes the shape of an op that is alone in its job, or one of many. If two shapes of an op have the same
 * hash, they share measurements: one of them may be slow, not wrong.
 */
static uint64_t shape_of(const struct op_args *args, bool is_one_of_many)
{
	uint64_t hash = hash_word(is_one_of_many, op_ignores(args, 0));

	hash = hash_word(hash, op_reads_outputs(args));
	hash = hash_word(hash, args->op->precision ? args->op->precision(args) : 0);
	for (unsigned i = 0; i < args->op->n_operands; i++)
		hash = hash_view(hash, &args->views[i]);
	return hash;
}

unsigned learned_alike(const struct run *run)
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

static struct entry *find(struct learned *l, const struct op *op, uint64_t shape)
{
	struct entry *set = &l->entries[shape % SETS * WAYS];

	for (unsigned i = 0; i < WAYS; i++)
		if (set[i].op == op && set[i].shape == shape) {
			set[i].last_used = ++l->uses;
			return &set[i];
		}
	return NULL;
}

static struct entry *take_place(struct learned *l, const struct op *op, uint64_t shape)
{
	struct entry *set = &l->entries[shape % SETS * WAYS], *oldest = set;

	for (unsigned i = 1; i < WAYS; i++)
		if (set[i].last_used < oldest->last_used)
			oldest = &set[i];
	*oldest = (struct entry){.op = op, .shape = shape, .last_used = ++l->uses, .due = NO_CANDIDATE};
	return oldest;
}

/* ---- Which kernel is next ---- */

/* Returns the fastest candidate. *ret_bar_us: the time that another would have to beat. */
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

/* A kernel's first launch may include its loading, so a slow one says little, unless it is slower than that. */
static double likely_us(const struct learned_candidate *c)
{
	bool may_have_loaded = c->trials == 1 && c->least_us < c->expected_us + LOADING_US;

	return c->least_us == 0 || (may_have_loaded && c->expected_us < c->least_us) ? c->expected_us
	                                                                             : c->least_us;
}

static bool comes_into_question(const struct learned_candidate *c, double bar_us)
{
	return c->trials < TRIALS && likely_us(c) < DOUBT * bar_us;
}

/*
 * The trials of one kernel follow each other, because the first launch after another kernel's takes longer, for
 * cuBLAS also on the host. If a rival won, the first choice has some more trials, because other jobs may have
 * slowed down its earlier ones.
 */
static unsigned due_of(const struct entry *e, double bar_us)
{
	unsigned due = NO_CANDIDATE;

	if (e->n == 0 || e->is_out)
		return NO_CANDIDATE;
	if (e->candidates[0].trials < TRIALS)
		return 0;
	for (unsigned i = 1; i < e->n; i++) {
		const struct learned_candidate *c = &e->candidates[i];

		if (!comes_into_question(c, bar_us))
			continue;
		if (c->trials > 0) /* begun, but not finished */
			return i;
		if (due == NO_CANDIDATE || c->expected_us < e->candidates[due].expected_us)
			due = i;
	}
	if (due == NO_CANDIDATE && e->fastest > 0 && e->candidates[0].trials < TRIALS + CONFIRMATIONS)
		return 0;
	return due;
}

static bool is_clearly_faster(const struct learned_candidate *c, const struct learned_candidate *first)
{
	return c->least_us < first->least_us * (1 - MIXED_GAIN) - MIXED_GAIN_US;
}

static void decide(const struct learned *l, struct entry *e)
{
	const struct kernel *kernels = l->owner.kernels(e->op)->kernels;
	const struct learned_candidate *first = &e->candidates[0], *c;
	double bar_us;

	e->fastest = fastest_of(e, &bar_us);
	e->due = due_of(e, bar_us);
	c = &e->candidates[e->fastest];
	e->fastest_preference.n = e->fastest > 0;
	e->fastest_preference.kernels[0] = (uint8_t)c->kernel;
	snprintf(e->fastest_preference.why, sizeof e->fastest_preference.why,
	         "fastest for this shape: %.4g us, %.16s took %.4g us", c->least_us,
	         kernels[first->kernel].name, first->least_us);
	if (e->due == NO_CANDIDATE)
		return;
	c = &e->candidates[e->due];
	e->due_preference.n = e->due > 0;
	e->due_preference.kernels[0] = (uint8_t)c->kernel;
	snprintf(e->due_preference.why, sizeof e->due_preference.why,
	         "on trial for this shape: %.4g us by estimate, %.16s took %.4g us", c->expected_us,
	         kernels[first->kernel].name, first->least_us);
}

/* NULL: the first choice. */
static const struct preference *preference_of(const struct entry *e, bool is_mixed)
{
	const struct preference *preferred =
	    !is_mixed && e->due != NO_CANDIDATE ? &e->due_preference : &e->fastest_preference;

	if (preferred->n == 0 ||
	    (is_mixed && !is_clearly_faster(&e->candidates[e->fastest], &e->candidates[0])))
		return NULL;
	return preferred;
}

const struct preference *learned_find(struct learned *l, const struct op_args *args, unsigned n_alike)
{
	const struct entry *e = find(l, args->op, shape_of(args, n_alike > 1));

	return e ? preference_of(e, n_alike == 0) : NULL;
}

/* ---- Trials ---- */

/* Returns true for a rival that was rejected. That is final, whatever an unfinished trial shows. */
static bool is_exhausted(const struct entry *e, const struct learned_candidate *c)
{
	return c != e->candidates && c->trials > TRIALS;
}

static void exhaust(struct learned_candidate *c)
{
	c->trials = TRIALS + CONFIRMATIONS;
	c->least_us = 0;
}

void learned_reject(struct learned *l, const struct op_args *args, unsigned n_alike)
{
	struct entry *e = find(l, args->op, shape_of(args, n_alike > 1));
	unsigned asked = !e ? 0 : e->due != NO_CANDIDATE ? e->due : e->fastest;

	if (asked == 0)
		return; /* the first choice is not asked for */
	exhaust(&e->candidates[asked]);
	l->changes++;
	decide(l, e);
}

static void open_trials(const struct learned *l, struct entry *e, const struct op_args *args,
                        size_t first_kernel)
{
	struct rival rivals[RIVALS_MAX];
	unsigned n = l->owner.rivals(l->owner.planner, args, rivals);

	e->candidates[0] = (struct learned_candidate){.kernel = first_kernel};
	e->n = 1;
	for (unsigned i = 0; i < n; i++)
		if (rivals[i].kernel != first_kernel && rivals[i].kernel <= UINT8_MAX)
			e->candidates[e->n++] = (struct learned_candidate){
			    .kernel = rivals[i].kernel, .expected_us = rivals[i].time_ns / 1e3};
	if (e->n == 1)
		e->n = 0; /* nothing to try */
	e->round = ++rounds;
	decide(l, e);
}

/* The kernel that all ops use, or NO_KERNEL if they differ. */
static size_t kernel_of(const struct learned *l, const struct run *run)
{
	const struct run_op *first = run->ops;

	for (unsigned i = 1; i < run->n_ops; i++)
		if (run->ops[i].kernel != first->kernel)
			return NO_KERNEL;
	return (size_t)(first->kernel - l->owner.kernels(first->args.op)->kernels);
}

static bool start_trial(struct learned *l, struct entry *e, size_t kernel)
{
	struct learned_candidate *c = &e->candidates[e->due];

	c->trials++; /* counts even if plans do not take it; otherwise it could be due forever */
	e->is_out = c->kernel == kernel;
	l->changes++;
	decide(l, e);
	return e->is_out;
}

static bool is_settled(const struct entry *e)
{
	return e->seen == FIRST_TRIAL && e->due == NO_CANDIDATE && !e->is_out;
}

/* NULL: the kernel is none. */
static struct learned_candidate *find_candidate(struct entry *e, size_t kernel)
{
	for (unsigned i = 0; i < e->n; i++)
		if (e->candidates[i].kernel == kernel)
			return &e->candidates[i];
	return NULL;
}

/* What the kernel took on trial; 0: unknown. */
static double usual_us(struct entry *e, size_t kernel)
{
	const struct learned_candidate *c = find_candidate(e, kernel);

	return c ? c->least_us : 0;
}

bool learned_begin(struct learned *l, const struct run *run, struct trial *ret_trial, bool *ret_settled)
{
	const struct op_args *args = &run->ops[0].args;
	uint64_t shape = shape_of(args, run->n_ops > 1);
	size_t kernel = kernel_of(l, run);
	struct entry *e = find(l, args->op, shape);

	*ret_trial = (struct trial){0};
	if (!e)
		e = take_place(l, args->op, shape);
	if (e->seen < FIRST_TRIAL && kernel < NO_KERNEL && ++e->seen == FIRST_TRIAL)
		open_trials(l, e, args, kernel);
	*ret_settled = is_settled(e);
	if (*ret_settled)
		ret_trial->usual_us = usual_us(e, kernel) * run->n_ops;
	if (e->due == NO_CANDIDATE || !start_trial(l, e, kernel))
		return false;
	*ret_trial = (struct trial){args->op, shape, e->round, kernel, run->n_ops, 0};
	return true;
}

static unsigned doubled(unsigned jobs, const struct entry *e)
{
	return jobs << (e->again < DOUBLED_MAX ? e->again : DOUBLED_MAX);
}

static void reopen_trials(struct learned *l, struct entry *e)
{
	for (unsigned i = 0; i < e->n; i++) {
		struct learned_candidate *c = &e->candidates[i];

		if (!is_exhausted(e, c))
			c->trials = 0;
		c->least_us = 0;
	}
	e->slow = e->jobs = 0;
	e->again++;
	e->round = ++rounds;
	l->changes++;
	decide(l, e);
}

bool learned_note(struct learned *l, const struct run *run, bool is_slow, unsigned n)
{
	const struct op_args *args = &run->ops[0].args;
	struct entry *e = find(l, args->op, shape_of(args, run->n_ops > 1));

	PRE(n > 0);
	if (!e || e->n == 0 || !is_settled(e))
		return false;
	e->slow = !is_slow ? 0 : n > 1 ? 1 : e->slow + 1;
	e->jobs = e->jobs < UINT_MAX - n ? e->jobs + n : UINT_MAX;
	if (e->slow < doubled(SLOW_JOBS, e) && (e->again == 0 || e->jobs < doubled(LATER_JOBS, e)))
		return false;
	reopen_trials(l, e);
	return true;
}

/* The candidate on trial; NULL: its entry was replaced meanwhile. */
static struct learned_candidate *take_back(struct learned *l, const struct trial *trial,
                                           struct entry **ret_entry)
{
	struct entry *e = find(l, trial->op, trial->shape);

	if (!e || e->round != trial->round)
		return NULL;
	*ret_entry = e;
	e->is_out = false;
	return find_candidate(e, trial->kernel);
}

void learned_end(struct learned *l, const struct trial *trial, double took_us)
{
	struct entry *e;
	struct learned_candidate *c = take_back(l, trial, &e);
	double us = took_us / trial->n_ops;

	if (!c)
		return;
	if (us <= 0 && c != e->candidates)
		exhaust(c);
	else if (us > 0 && (c->least_us == 0 || us < c->least_us) && !is_exhausted(e, c))
		c->least_us = us;
	l->changes++;
	decide(l, e);
}

void learned_cancel(struct learned *l, const struct trial *trial)
{
	struct entry *e;
	struct learned_candidate *c = take_back(l, trial, &e);

	if (!c)
		return;
	c->trials--;
	decide(l, e);
}

/* ---- Export and import ---- */

uint64_t learned_changes(const struct learned *l)
{
	return l->changes;
}

static int by_use(const void *a, const void *b)
{
	const struct entry *x = *(const struct entry *const *)a, *y = *(const struct entry *const *)b;

	return (x->last_used < y->last_used) - (x->last_used > y->last_used);
}

int learned_export(const struct learned *l, struct learned_shape **ret_shapes, size_t *ret_n)
{
	const struct entry *tried[LEARNED_SHAPES_MAX];
	struct learned_shape *shapes = NULL;
	size_t n = 0;

	for (size_t i = 0; i < LEARNED_SHAPES_MAX; i++)
		if (l->entries[i].n > 0)
			tried[n++] = &l->entries[i];
	qsort(tried, n, sizeof *tried, by_use);
	if (n > 0 && !(shapes = calloc(n, sizeof *shapes)))
		return KOPS_E_NOMEM;
	for (size_t i = 0; i < n; i++) {
		shapes[i] =
		    (struct learned_shape){.op = tried[i]->op, .hash = tried[i]->shape, .n = tried[i]->n};
		memcpy(shapes[i].candidates, tried[i]->candidates, sizeof shapes[i].candidates);
	}
	*ret_shapes = shapes;
	*ret_n = n;
	return 0;
}

static bool is_time(double us)
{
	return us >= 0 && us < US_MAX; /* false for NaN */
}

static bool makes_sense(const struct learned *l, const struct learned_shape *s)
{
	size_t n_kernels = l->owner.kernels(s->op)->n;

	if (s->n < 2 || s->n > LEARNED_CANDIDATES_MAX)
		return false;
	for (unsigned i = 0; i < s->n; i++) {
		const struct learned_candidate *c = &s->candidates[i];

		if (c->kernel >= n_kernels || c->kernel > UINT8_MAX || !is_time(c->expected_us) ||
		    !is_time(c->least_us) || c->trials > TRIALS + CONFIRMATIONS)
			return false;
		for (unsigned other = 0; other < i; other++)
			if (s->candidates[other].kernel == c->kernel)
				return false;
	}
	return true;
}

bool learned_import(struct learned *l, const struct learned_shape *s)
{
	struct entry *set = &l->entries[s->hash % SETS * WAYS], *place = NULL;

	if (!makes_sense(l, s))
		return false;
	for (unsigned i = WAYS; i-- > 0;) {
		if (set[i].op == s->op && set[i].shape == s->hash)
			return true;
		if (!set[i].op)
			place = &set[i];
	}
	if (!place)
		return true;
	*place =
	    (struct entry){.op = s->op, .shape = s->hash, .seen = FIRST_TRIAL, .n = s->n, .round = ++rounds};
	memcpy(place->candidates, s->candidates, sizeof place->candidates);
	decide(l, place);
	return true;
}
