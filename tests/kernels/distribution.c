/* distribution.c: operands for judging accuracy. See accuracy.h. */
#include <math.h>

#include "accuracy.h"
#include "common/threads.h"

#define FILL_GRAIN (1u << 15) /* elements per part */

/* The place of an element: in a row of A or a column of B, which are lines along K. */
struct place {
	const struct source *source;
	enum operand operand;
	uint64_t line, k;
	int reach; /* parameter of the distribution */
};

/* ---- Random numbers by position, so that an element is the same in any layout ---- */

enum sequence { ELEMENT, EXPONENT, LINE, LAYER, CHOICE };

static uint64_t bits_at(const struct place *at, enum sequence sequence, enum operand operand, uint64_t index)
{
	struct random seed = {at->source->seed + 3 * (uint64_t)sequence + (uint64_t)operand};
	struct random r = {random_next(&seed) + index * 0x9e3779b97f4a7c15u};

	return random_next(&r);
}

static uint64_t element_bits(const struct place *at, enum sequence sequence)
{
	return bits_at(at, sequence, at->operand, at->line * at->source->depth + at->k);
}

/* Returns a number uniform in (0, 1), from 32 bits. */
static float fraction(uint64_t bits)
{
	return ((float)(bits >> 8 & 0xffffff) + 0.5f) * 0x1p-24f;
}

/* Returns a number from N(0,1), by Box and Muller. */
static float normal(uint64_t bits)
{
	return sqrtf(-2 * logf(fraction(bits >> 32))) * cosf(6.2831853f * fraction(bits));
}

static int exponent(uint64_t bits, int reach)
{
	return (int)(bits % (2 * (uint64_t)reach + 1)) - reach;
}

/* Lowers B's exponents, so that long sums of products near 2^120 do not overflow. */
static int headroom(const struct place *at)
{
	return at->operand == OPERAND_B ? 8 : 0;
}

/* ---- Distributions ---- */

static float element_normal(const struct place *at)
{
	return normal(element_bits(at, ELEMENT));
}

static float element_unit(const struct place *at)
{
	return (float)(element_bits(at, ELEMENT) >> 40) * 0x1p-24f;
}

static float element_signed(const struct place *at)
{
	return 2 * element_unit(at) - 1;
}

static float element_lognormal(const struct place *at)
{
	return expf((float)at->reach * element_normal(at));
}

/* Makes one number in a hundred a thousand times as large as the others. */
static float element_outliers(const struct place *at)
{
	return element_normal(at) * (element_bits(at, CHOICE) % 100 == 0 ? 1000 : 1);
}

static float element_spread(const struct place *at)
{
	int e = exponent(element_bits(at, EXPONENT), at->reach);

	return ldexpf(element_normal(at), e - headroom(at));
}

/* Makes sums depend on few products, and some on none. */
static float element_sparse(const struct place *at)
{
	return element_bits(at, LAYER) % 4 == 0 ? element_spread(at) : 0;
}

/* Makes a few lines as wide as `spread`, among many that are not. */
static float element_wide_lines(const struct place *at)
{
	bool is_wide = bits_at(at, LINE, at->operand, at->line) % 300 == 0;

	return is_wide ? element_spread(at) : element_normal(at);
}

/* Gives each row of A and each column of B one exponent. */
static float element_lines(const struct place *at)
{
	int e = exponent(bits_at(at, LINE, at->operand, at->line), at->reach);

	return ldexpf(element_normal(at), e - headroom(at));
}

/*
 * Gives a column of A one exponent, and the row of B that meets it the opposite one. Lines are as wide as
 * `spread`, but all products count alike, so no small element may be lost.
 */
static float element_opposed(const struct place *at)
{
	int e = exponent(bits_at(at, LAYER, OPERAND_A, at->k), at->reach);

	return ldexpf(element_normal(at), at->operand == OPERAND_A ? e : -e);
}

/*
 * Lets the second half of K cancel the first, except for one part in 2^12. |A| |B| is as large as the sum was
 * halfway, so the result's few digits are judged by what they came from.
 */
static float element_cancel(const struct place *at)
{
	uint64_t half = at->source->depth / 2;
	struct place partner = *at;

	if (at->k < half || at->k >= 2 * half)
		return element_unit(at);
	partner.k -= half;
	if (at->operand == OPERAND_B)
		return element_unit(&partner);
	return -element_unit(&partner) * (1 + 0x1p-12f * element_normal(at));
}

/* Makes A subnormal but not the products. */
static float element_small(const struct place *at)
{
	return ldexpf(element_normal(at), at->operand == OPERAND_A ? -130 : 60);
}

/* Makes ordinary numbers whose products, and most sums, are subnormal. */
static float element_vanishing(const struct place *at)
{
	return ldexpf(element_normal(at), at->operand == OPERAND_A ? -70 : -68);
}

/* Puts NaN and infinities into about one line in four, and one somewhere; and zeros for infinities to meet. */
static float element_special(const struct place *at)
{
	static const float specials[] = {NAN, INFINITY, -INFINITY};
	uint64_t lines = at->source->lines[at->operand], depth = at->source->depth;
	uint64_t chosen = bits_at(at, CHOICE, at->operand, 0) % (lines * depth);
	uint64_t draw = element_bits(at, EXPONENT);

	if (at->line * depth + at->k == chosen || draw % (4 * depth) == 0)
		return specials[draw / 4 / depth % 3];
	return draw / 4 / depth % 10 == 0 ? 0 : element_normal(at);
}

/*
 * Makes half of the lines so large in one place along K that their products overflow by far. This is one term
 * of a sum, so the sum is infinite in any order.
 */
static float element_overflow(const struct place *at)
{
	uint64_t layer = bits_at(at, CHOICE, OPERAND_A, 0) % at->source->depth;
	uint64_t draw = bits_at(at, LINE, at->operand, at->line);
	float x = element_normal(at);

	if (at->k != layer || draw % 2 == 0)
		return x;
	return copysignf(ldexpf(1 + fraction(draw >> 32), 70 + (int)(draw / 2 % 30)), x);
}

static const struct distribution {
	const char *name;
	float (*element)(const struct place *at);
	int reach;
	bool classes;
} distributions[DISTRIBUTIONS] = {
    {"N(0,1)", element_normal, 0, false},         {"U[0,1)", element_unit, 0, false},
    {"U[-1,1)", element_signed, 0, false},        {"lognormal4", element_lognormal, 4, false},
    {"spread20", element_spread, 20, false},      {"spread60", element_spread, 60, false},
    {"sparse20", element_sparse, 20, false},      {"lines20", element_lines, 20, false},
    {"lines60", element_lines, 60, false},        {"opposed20", element_opposed, 20, false},
    {"opposed60", element_opposed, 60, false},    {"cancel", element_cancel, 0, false},
    {"small", element_small, 0, false},           {"vanishing", element_vanishing, 0, false},
    {"outliers", element_outliers, 0, false},     {"lognormal2", element_lognormal, 2, false},
    {"opposed9", element_opposed, 9, false},      {"opposed12", element_opposed, 12, false},
    {"widelines", element_wide_lines, 20, false}, {"special", element_special, 0, true},
    {"overflow", element_overflow, 0, true},
};

const char *distribution_name(unsigned d)
{
	return distributions[d].name;
}

bool distribution_is_classes(unsigned d)
{
	return distributions[d].classes;
}

struct filling {
	unsigned distribution, n_parts;
	const struct source *source;
	enum operand operand;
	bool along_k;
	float *to;
};

static void fill_part(void *ctx, unsigned part)
{
	const struct filling *f = ctx;
	const struct distribution *d = &distributions[f->distribution];
	struct place at = {.source = f->source, .operand = f->operand, .reach = d->reach};
	uint64_t lines = f->source->lines[f->operand], depth = f->source->depth;
	uint64_t end = threads_bound(lines * depth, part + 1, f->n_parts);

	for (uint64_t i = threads_bound(lines * depth, part, f->n_parts); i < end; i++) {
		at.line = f->along_k ? i / depth : i % lines;
		at.k = f->along_k ? i % depth : i / lines;
		f->to[i] = d->element(&at);
	}
}

void distribution_fill(unsigned d, const struct source *source, enum operand operand, float *to, bool along_k)
{
	struct filling f = {d, 1, source, operand, along_k, to};

	f.n_parts = threads_parts(source->lines[operand] * source->depth, FILL_GRAIN);
	threads_run(f.n_parts, fill_part, &f);
}
