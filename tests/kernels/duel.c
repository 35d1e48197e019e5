/*
 * duel.c: computes one problem by a kernel, by its peer and in float64, and judges it element by element.
 *
 * An element's error is |C - C64| / (|alpha| |A| |B| + |beta| |C0|). C64 and the denominator are products in
 * float64 on the same device, checked in a few places against sums in long double. A denominator below f32's
 * smallest normal number counts as that number. There results are 2^-149 apart, and rounding by half of that is
 * 2^-24 of it, as elsewhere. So a denominator of 0, where C must be 0, needs no special case.
 */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accuracy.h"
#include "gemm/gemm.h"

#define SAMPLE_MAX 4096       /* most elements that the plain loop computes */
#define SAMPLE_FMA (1u << 23) /* and most of its steps, about */
#define PLACES     4          /* places in which float64 is checked */
/* Distance from one draw's seed to the next: large, since nearby seeds share streams of numbers. */
#define SEED_STEP 0xd1342543de82ef95u

enum array { A, B, C, PEER, A64, B64, C64, TOTAL, ARRAYS };

struct bout {
	struct target *t;
	const struct duel *d;
	struct duel_result *result;
	struct memory arrays[ARRAYS];
	uint64_t sample; /* elements that the plain loop computes */
	float *plain;    /* results of the plain loop */
	unsigned draw;
	uint64_t seed; /* of this draw */
};

static bool fail(struct bout *b, const char *what, const char *why)
{
	b->result->outcome = DUEL_BROKEN;
	snprintf(b->result->why, sizeof b->result->why, "%s: %s", what, why);
	return false;
}

/* ---- Memory ---- */

static uint64_t elements_of(const struct duel *d, enum array array)
{
	if (array == A || array == A64)
		return d->m * d->k;
	return array == B || array == B64 ? d->k * d->n : d->m * d->n;
}

static float *floats(const struct bout *b, enum array array)
{
	return b->arrays[array].host;
}

static double *doubles(const struct bout *b, enum array array)
{
	return b->arrays[array].host;
}

static bool allocate(struct bout *b)
{
	for (unsigned i = 0; i < ARRAYS; i++) {
		struct memory *m = &b->arrays[i];
		m->bytes = elements_of(b->d, i) * (i < A64 ? sizeof(float) : sizeof(double));
		if (!(m->host = malloc(m->bytes)))
			return false;
	}
	b->plain = malloc((b->sample + 1) * sizeof *b->plain);
	return b->plain != NULL;
}

static void release(struct bout *b)
{
	for (unsigned i = 0; i < ARRAYS; i++)
		free(b->arrays[i].host);
	free(b->plain);
}

/* ---- Lines ---- */

struct line {
	const float *a, *b; /* a row of A, a column of B, and their strides along K */
	uint64_t a_step, b_step;
};

/* Return the row and column of element `at` of C in memory. */
static uint64_t row_of(const struct duel *d, uint64_t at)
{
	return d->transposed[C] ? at % d->m : at / d->n;
}

static uint64_t col_of(const struct duel *d, uint64_t at)
{
	return d->transposed[C] ? at / d->m : at % d->n;
}

static struct line line_of(const struct bout *b, uint64_t at)
{
	const struct duel *d = b->d;
	uint64_t row = row_of(d, at), col = col_of(d, at);

	return (struct line){
	    .a = floats(b, A) + (d->transposed[A] ? row : row * d->k),
	    .b = floats(b, B) + (d->transposed[B] ? col * d->k : col),
	    .a_step = d->transposed[A] ? d->m : 1,
	    .b_step = d->transposed[B] ? 1 : d->n,
	};
}

/* ---- Filling ---- */

static void fill_inputs(struct bout *b)
{
	const struct duel *d = b->d;
	struct source source = {b->seed, {d->m, d->n}, d->k};

	distribution_fill(d->distribution, &source, OPERAND_A, floats(b, A), !d->transposed[A]);
	distribution_fill(d->distribution, &source, OPERAND_B, floats(b, B), d->transposed[B]);
}

/*
 * Sets C0 to a multiple of a term of its own sum, about as large as a sum of many. If C0 must not be read, NaN
 * reveals that it was.
 */
static void fill_output(struct bout *b)
{
	struct random r = {b->seed};
	double scale = 3 * sqrt((double)b->d->k);

	for (uint64_t i = 0; i < elements_of(b->d, C); i++) {
		struct line l = line_of(b, i);
		double term = (double)*l.a * (double)*l.b;
		float x = b->d->beta == 0 ? NAN : (float)(scale * random_unit(&r) * term);
		floats(b, C)[i] = floats(b, PEER)[i] = x;
		doubles(b, C64)[i] = x;
		doubles(b, TOTAL)[i] = fabs((double)x);
	}
}

static float keep_bits(float x, unsigned bits)
{
	int e;
	float part = ldexpf(frexpf(x, &e), (int)bits);

	return isfinite(x) ? ldexpf(rintf(part), e - (int)bits) : x;
}

static void spoil_inputs(struct bout *b)
{
	for (unsigned i = A; i <= B && b->d->keep_bits; i++)
		for (uint64_t j = 0; j < elements_of(b->d, i); j++)
			floats(b, i)[j] = keep_bits(floats(b, i)[j], b->d->keep_bits);
}

/* ---- Products on the device ---- */

static struct view matrix(const struct bout *b, enum array array, kops_dtype dtype, unsigned operand)
{
	const struct duel *d = b->d;
	uint64_t rows = operand == B ? d->k : d->m, cols = operand == A ? d->k : d->n;
	struct view v = {.space = &b->arrays[array], .dtype = dtype, .rank = 2, .shape = {rows, cols}};

	v.strides[0] = d->transposed[operand] ? 1 : (int64_t)cols;
	v.strides[1] = d->transposed[operand] ? (int64_t)rows : 1;
	return v;
}

static int make_op(const struct bout *b, const enum array arrays[3], kops_dtype dtype, const char *kernel,
                   struct run_op *op, char why[WHY_BYTES])
{
	*op = (struct run_op){.args = {.op = op_by_name("gemm")}, .pinned = kernel};
	for (unsigned i = A; i <= C; i++)
		op->args.views[i == C ? GEMM_C : i] = matrix(b, arrays[i], dtype, i);
	op->args.params.gemm = (struct gemm_params){.alpha = b->d->alpha, .beta = b->d->beta};
	return op_check(&op->args, why);
}

static bool compute(struct bout *b, const struct run_op *made, const char *what)
{
	struct run_op op = *made;
	struct run run = {.ops = &op, .n_ops = 1};

	return target_compute(b->t, &run) == 0 || fail(b, what, run.error);
}

static bool multiply(struct bout *b, enum array to, const char *kernel)
{
	const enum array arrays[] = {A, B, to};
	char why[WHY_BYTES];
	struct run_op op;

	return make_op(b, arrays, KOPS_F32, kernel, &op, why) == 0 ? compute(b, &op, *kernel ? kernel : "auto")
	                                                           : fail(b, "check()", why);
}

/* Finds which kernel would run. Returns false if none, or the peer itself. */
static bool find_kernel(struct bout *b)
{
	const enum array arrays[] = {A, B, C};
	struct duel_result *result = b->result;
	char why[WHY_BYTES];
	struct run_op op;
	struct run run = {.ops = &op, .n_ops = 1};

	if (make_op(b, arrays, KOPS_F32, b->d->kernel, &op, why) < 0)
		return fail(b, "check()", why);
	int rc = plan_run(&b->t->planner, &run);
	if (rc < 0) {
		fail(b, "plan", run.error);
		result->outcome = rc == KOPS_E_UNSUPPORTED ? DUEL_REFUSED : DUEL_BROKEN;
		return false;
	}
	run_forget_plan(&run);
	result->kernel = op.kernel->name;
	if (strcmp(result->kernel, b->d->peer) == 0)
		result->outcome = DUEL_SAME_KERNEL;
	return result->outcome == DUEL_FOUGHT;
}

/* ---- The float64 result ---- */

static void widen(struct bout *b, enum array to, enum array from, bool absolute)
{
	for (uint64_t i = 0; i < elements_of(b->d, from); i++) {
		double x = floats(b, from)[i];
		doubles(b, to)[i] = absolute ? fabs(x) : x;
	}
}

static bool multiply_wide(struct bout *b, enum array to, bool absolute)
{
	const enum array arrays[] = {A64, B64, to};
	char why[WHY_BYTES];
	struct run_op op;

	widen(b, A64, A, absolute);
	widen(b, B64, B, absolute);
	if (make_op(b, arrays, KOPS_F64, "", &op, why) < 0)
		return fail(b, "check()", why);
	if (absolute) {
		op.args.params.gemm.alpha = fabs(b->d->alpha);
		op.args.params.gemm.beta = fabs(b->d->beta);
	}
	return compute(b, &op, "the product in float64");
}

static bool is_near(double got, long double want, long double total, uint64_t k)
{
	return fabsl((long double)got - want) <= total * (long double)(k + 8) * 0x1p-53L;
}

static bool check_place(struct bout *b, uint64_t at)
{
	const struct duel *d = b->d;
	struct line l = line_of(b, at);
	long double c = d->beta == 0 ? 0 : (long double)floats(b, C)[at], sum = 0, total = 0;
	char text[192];

	for (uint64_t k = 0; k < d->k; k++) {
		long double x = (long double)l.a[k * l.a_step] * (long double)l.b[k * l.b_step];
		sum += x;
		total += fabsl(x);
	}
	sum = (long double)d->alpha * sum + (long double)d->beta * c;
	total = fabsl((long double)d->alpha) * total + fabsl((long double)d->beta * c);
	if (is_near(doubles(b, C64)[at], sum, total, d->k) &&
	    is_near(doubles(b, TOTAL)[at], total, total, d->k))
		return true;
	snprintf(text, sizeof text, "element %" PRIu64 " is %.17g of %.17g, should be %.17Lg of %.17Lg", at,
	         doubles(b, C64)[at], doubles(b, TOTAL)[at], sum, total);
	return fail(b, "the product in float64", text);
}

static bool find_exact(struct bout *b)
{
	struct random r = {b->seed};

	if (!multiply_wide(b, C64, false) || !multiply_wide(b, TOTAL, true))
		return false;
	for (unsigned i = 0; i < PLACES; i++)
		if (!check_place(b, random_below(&r, elements_of(b->d, C))))
			return false;
	return true;
}

/* ---- The plain loop ---- */

/* Returns the place of element i of a sample, which is spread evenly over C; all of C if it is as large. */
static uint64_t sample_at(const struct bout *b, uint64_t i)
{
	return i * elements_of(b->d, C) / b->sample;
}

static uint64_t sample_size(const struct duel *d)
{
	uint64_t n = d->m * d->n, most = SAMPLE_FMA / d->k;

	if (distribution_is_classes(d->distribution))
		return strcmp(d->peer, SEQUENTIAL) == 0 ? n : 0;
	most = most < SAMPLE_MAX ? most : SAMPLE_MAX;
	return n < most ? n : most;
}

/* Rounds every operation after the sum: the program is compiled without contraction. */
static float add_plainly(const struct bout *b, uint64_t at)
{
	struct line l = line_of(b, at);
	float alpha = (float)b->d->alpha, beta = (float)b->d->beta, sum = 0;

	for (uint64_t k = 0; k < b->d->k; k++)
		sum = fmaf(l.a[k * l.a_step], l.b[k * l.b_step], sum);
	return beta == 0 ? alpha * sum : alpha * sum + beta * floats(b, C)[at];
}

/* ---- Comparing ---- */

static double error_of(const struct bout *b, float got, uint64_t at)
{
	double error = fabs((double)got - doubles(b, C64)[at]) / fmax(doubles(b, TOTAL)[at], (double)FLT_MIN);

	return isnan(error) ? INFINITY : error;
}

static bool compare_element(const struct bout *b, struct contest *contest, uint64_t at, float peer)
{
	const struct duel *d = b->d;

	return contest_add(contest, b->draw * d->m + row_of(d, at), b->draw * d->n + col_of(d, at),
	                   error_of(b, floats(b, C)[at], at), error_of(b, peer, at));
}

static bool compare_errors(struct bout *b)
{
	struct duel_result *result = b->result;
	bool peer_is_kernel = strcmp(b->d->peer, SEQUENTIAL) != 0, room = true;
	struct contest *plain = peer_is_kernel ? &result->sequential : &result->peer;

	for (uint64_t at = 0; peer_is_kernel && room && at < elements_of(b->d, C); at++)
		room = compare_element(b, &result->peer, at, floats(b, PEER)[at]);
	for (uint64_t i = 0; room && i < b->sample; i++)
		room = compare_element(b, plain, sample_at(b, i), b->plain[i]);
	return room || fail(b, "errors", "out of memory");
}

static const char *class_of(float x)
{
	if (isnan(x))
		return "NaN";
	return isfinite(x) ? "finite" : x > 0 ? "Inf" : "-Inf";
}

/* Here the plain loop's sample is all of C. */
static void compare_classes(struct bout *b)
{
	struct duel_result *result = b->result;
	const float *peer = b->sample ? b->plain : floats(b, PEER);

	for (uint64_t at = 0; at < elements_of(b->d, C); at++) {
		const char *own = class_of(floats(b, C)[at]), *want = class_of(peer[at]);
		result->elements++;
		if (strcmp(own, want) == 0)
			continue;
		if (result->differ++ == 0)
			snprintf(result->why, sizeof result->why, "element %" PRIu64 " is %s, the peer's %s",
			         at, own, want);
	}
}

/*
 * Runs the kernel last, since its operands may be modified, and C holds what the plain loop reads until then.
 */
static bool fight_once(struct bout *b)
{
	bool classes = distribution_is_classes(b->d->distribution);

	fill_inputs(b);
	fill_output(b);
	if (strcmp(b->d->peer, SEQUENTIAL) != 0 && !multiply(b, PEER, b->d->peer))
		return false;
	if (!classes && !find_exact(b))
		return false;
	for (uint64_t i = 0; i < b->sample; i++)
		b->plain[i] = add_plainly(b, sample_at(b, i));
	spoil_inputs(b);
	if (!multiply(b, C, b->d->kernel))
		return false;
	if (!classes)
		return compare_errors(b);
	compare_classes(b);
	return true;
}

void duel_fight(struct target *t, const struct duel *d, struct duel_result *ret)
{
	struct bout b = {.t = t, .d = d, .result = ret, .sample = sample_size(d)};

	*ret = (struct duel_result){.outcome = DUEL_FOUGHT, .kernel = ""};
	if (!allocate(&b))
		fail(&b, "arrays", "out of memory");
	else if (find_kernel(&b))
		for (; b.draw < d->draws; b.draw++) {
			b.seed = d->seed + b.draw * SEED_STEP;
			if (!fight_once(&b))
				break;
		}
	release(&b);
}

void duel_result_free(struct duel_result *r)
{
	contest_free(&r->peer);
	contest_free(&r->sequential);
}
